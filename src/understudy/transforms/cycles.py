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


def undisplaced(half: Tensor) -> Tensor:
    """The W with Z₁ W − W Z₋₁ = 2 · half: Z are shifts down that wrap around, the second with the other sign.

    Along a wrapped diagonal each entry of W is the one before less an entry of the displacement; the sign has
    changed after one turn, which says where to begin.
    """
    size = len(half)
    columns = torch.cat((half.T, half.T), dim=1).flatten()  # row t of half.T twice, 2n numbers
    along = F.pad(columns[1:], (0, size + 1)).reshape(size, 2 * size + 1)[:, :size]
    sums = along.cumsum(0)  # of along[t, i] = half[i + t + 1, t]
    before = F.pad(sums[:-1], (0, 0, 1, 0))
    entries = sums[-1] - before - before  # [t, i] = W[i + t, t]
    turned = torch.cat((entries, entries), dim=1).flatten()[size:]
    return turned.reshape(size, 2 * size - 1)[:, :size].T
