"""Circulant matrices from the numbers that define them, and the way back."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def circulant(values: Tensor) -> Tensor:
    """C[i, j] = values[(i − j) mod n] for each of (..., n): a repetition cut into rows, nothing computed.

    >>> import torch
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
