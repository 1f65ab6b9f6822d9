"""Products of vectors in rows with matrices, by the library of PyTorch that is quicker here."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from understudy._util.capturing import is_captured
from understudy._util.processor import products_lag

# One thread convolves fewer images as products of matrices; images of fewer rows cost more than they gain.
_IMAGES, _ROWS, _MOST = 16, 4, 4096
MANY = 4_000_000  # mult-adds, from which a convolution is worth its beginning where products lag


def rows_times(x: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
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
        and x.layout == torch.strided
        and x.dtype == torch.float32
        and x.shape[:-1].numel() * matrix.numel() >= MANY
        and _image_count(x.shape[:-1].numel()) > 1
        and not torch.is_autocast_enabled("cpu")
    )


def convolved(rows: Tensor, matrix: Tensor, bias: Tensor | None = None, groups: int = 1) -> Tensor:
    """Rows through a 1×1 convolution, as images with channels last.

    Several images, where rows can be shared out, let the backward pass use all threads: it is up to twice as
    quick as with one. A compiled graph has one image, since it is for any number of rows.
    """
    count = 1 if torch.compiler.is_compiling() else _image_count(len(rows))
    images = rows.reshape(count, 1, -1, rows.shape[1]).permute(0, 3, 1, 2)
    out = F.conv2d(images, matrix[..., None, None], bias, groups=groups)
    return out.permute(0, 2, 3, 1).reshape(-1, len(matrix))


@functools.cache
def _image_count(rows: int) -> int:
    """Among how many images so many rows are shared out evenly; 1 where they cannot be."""
    most = min(rows // _ROWS, _MOST)
    return next((count for count in range(_IMAGES, most + 1) if rows % count == 0), 1)
