"""What projections share: decompositions in double precision, balanced norms, a knob within its range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_COUNTS: dict[tuple[int, int, int], tuple[int, int]] = {}  # a plain memo: torch.compile traces through it


def clamp_knob(knob: float, legal: Sequence[int]) -> int:
    """Round down to a whole knob within a contiguous, rising range."""
    return min(max(math.floor(knob), legal[0]), legal[-1])


def divisors(n: int) -> list[int]:
    """All divisors, rising."""
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


def nearest_divisor(n: int, wanted: float) -> int:
    """The divisor of n that is nearest to `wanted` by ratio, of two as near the smaller."""
    return min(divisors(n), key=lambda k: round(abs(math.log(k / wanted)), 9))


def block_counts(in_features: int, out_features: int, parts: int = 1) -> tuple[int, int]:
    """Into how many blocks input and output are cut: of each size the divisor nearest to √(size / parts).

    >>> block_counts(576, 64)
    (24, 8)
    """
    asked = (in_features, out_features, parts)
    if asked not in _COUNTS:
        k, m = (nearest_divisor(size, max(1.0, size / parts) ** 0.5) for size in asked[:2])
        _COUNTS[asked] = k, m
    return _COUNTS[asked]


def leading_directions(matrix: Tensor, rank: int) -> Tensor:
    """Orthonormal columns that span the leading `rank` directions of a matrix's columns, (..., rows, rank).

    They are eigenvectors of the Gram matrix, in double precision: many times quicker than a full SVD.
    """
    precise = matrix.double()
    vectors: Tensor = torch.linalg.eigh(precise @ precise.mT).eigenvectors  # the last is the leading one
    return vectors.flip(-1)[..., :rank].to(matrix.dtype)


def truncated_svd(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The best `(left, right)` of a rank with left · right ≈ matrix; both carry √ of the singular values.

    Of a stack of matrices, (..., rows, columns), each is cut by itself.
    """
    if matrix.shape[-2] > matrix.shape[-1]:
        right, left = truncated_svd(matrix.mT, rank)
        return left.mT, right.mT
    precise = matrix.double()
    basis = leading_directions(precise, rank)
    rest = basis.mT @ precise
    root = rest.norm(dim=-1).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return (basis * root[..., None, :]).to(matrix.dtype), (rest / root[..., None]).to(matrix.dtype)


def balance_(*parameters: Tensor) -> None:
    """Scale tensors to equal norms without changing their product: gradients then reach all of them alike."""
    norms = torch.stack([parameter.norm() for parameter in parameters])
    if bool((norms > 0).all()):
        for parameter, factor in zip(parameters, norms.log().mean().exp() / norms, strict=True):
            parameter.mul_(factor)
