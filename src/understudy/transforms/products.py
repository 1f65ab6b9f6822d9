"""Products of vectors in rows with matrices, by the library of PyTorch that is quicker here."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from understudy._util.capturing import is_captured
from understudy._util.processor import products_lag

_IMAGES = 16
MANY = 4_000_000  # mult-adds, from which a convolution is worth its beginning where products lag


def times(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    """F.linear, or the same as a convolution."""
    if not is_sooner_convolved(x, matrix):
        return F.linear(x, matrix, bias)
    return convolved(x.reshape(-1, x.shape[-1]), matrix, bias).reshape(*x.shape[:-1], len(matrix))


def is_sooner_convolved(x: Tensor, matrix: Tensor) -> bool:
    """Whether products lag, and these are of many vectors (…, channels)."""
    return (
        not is_captured()  # first: a compiler need not look at what follows
        and products_lag()
        and x.is_cpu
        and x.dtype == torch.float32
        and x.numel() // x.shape[-1] * matrix.numel() >= MANY
        and x.numel() % (_IMAGES * x.shape[-1]) == 0
        and not torch.is_autocast_enabled("cpu")
    )


def convolved(rows: Tensor, matrix: Tensor, bias: Tensor | None = None, groups: int = 1) -> Tensor:
    """Rows through a 1×1 convolution, as images with channels last.

    Several images, where so many rows can be shared out, let the backward pass use all threads: it is up to
    twice as quick as with one. A compiled graph has one image, since it is for any number of rows.
    """
    several = not torch.compiler.is_compiling() and len(rows) % _IMAGES == 0
    images = rows.reshape(_IMAGES if several else 1, 1, -1, rows.shape[1]).permute(0, 3, 1, 2)
    out = F.conv2d(images, matrix[..., None, None], bias, groups=groups)
    return out.permute(0, 2, 3, 1).reshape(-1, len(matrix))
