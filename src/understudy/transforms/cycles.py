"""Circulant matrices from the numbers that define them, and the way back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def circulant(values: Tensor) -> Tensor:
    """C[i, j] = values[(i − j) mod n] for each of (..., n): a repetition cut into rows, nothing computed.

    >>> circulant(torch.tensor([1, 2, 3]))
    tensor([[1, 3, 2],
            [2, 1, 3],
            [3, 2, 1]])
    """
    *leading, size = values.shape
    backwards = values.flip(-1).roll(1, -1)  # [k] = values[−k mod n]
    repeated = backwards[..., None, :].expand(*leading, 2 * size - 1, size)
    return repeated.reshape(*leading, size, 2 * size - 1)[..., :size]


def circulant_sums(matrix: Tensor) -> Tensor:
    """The adjoint of `circulant`: the sum over each wrapped diagonal of (..., n, n)."""
    *leading, size, _ = matrix.shape
    repeated = F.pad(matrix, (0, size - 1)).reshape(*leading, 2 * size - 1, size)
    return repeated.sum(-2).roll(-1, -1).flip(-1)


def undisplaced(left: Tensor, right: Tensor, rows: int, columns: int) -> Tensor:
    """The first rows and columns of the W with Z₁ W − W Z₋₁ = 2 · left · right.

    Z are shifts down that wrap around, the second with the other sign.
    """
    if rows < columns:  # Z₋₁ Wᵀ − Wᵀ Z₁ = 2 · (Z₋₁ rightᵀ) (leftᵀ Z₁)
        below = torch.cat((-right[:, -1:], right[:, :-1]), dim=1)
        return _first_columns(below.T @ left.roll(-1, 0).T, rows, flips=True)[:columns].T
    return _first_columns(left @ right, columns, flips=False)[:rows]


def _first_columns(half: Tensor, columns: int, *, flips: bool) -> Tensor:
    """Those of the W with Z W − W Z' = 2 · half: the sign `flips` where Z wraps around, or where Z' does.

    Along a wrapped diagonal each entry of W is the one before less an entry of the displacement; the sign has
    changed after one turn, which says where to begin.
    """
    size = len(half)
    twice = torch.cat((half.T, -half.T if flips else half.T), dim=1)  # rows of 2n numbers
    along = F.pad(twice.flatten()[1:], (0, size + 1)).reshape(size, 2 * size + 1)[:, :size]
    sums = along[:columns].cumsum(0)  # of along[t, i] = half[i + t + 1, t]
    before = F.pad(sums[:-1], (0, 0, 1, 0))
    entries = along.sum(0) - before - before  # [t, i] = W[i + t, t]
    turned = torch.cat((-entries if flips else entries, entries), dim=1).flatten()[size:]
    return F.pad(turned, (0, size - columns)).reshape(columns, 2 * size - 1)[:, :size].T
