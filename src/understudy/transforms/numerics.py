"""What projections share: decompositions in double precision, balanced norms, a knob within its range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def clamp_knob(knob: float, legal: Sequence[int]) -> int:
    """Round down to a whole knob within a contiguous, rising range."""
    return min(max(math.floor(knob), legal[0]), legal[-1])


def leading_directions(matrix: Tensor, rank: int) -> Tensor:
    """Orthonormal columns that span the leading `rank` directions of a matrix's columns.

    They are eigenvectors of the Gram matrix, in double precision: many times quicker than a full SVD.
    """
    precise = matrix.double()
    vectors: Tensor = torch.linalg.eigh(precise @ precise.T).eigenvectors  # the last is the leading one
    return vectors.flip(-1)[:, :rank].to(matrix.dtype)


def truncated_svd(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The best `(left, right)` of a rank with left · right ≈ matrix; both carry √ of the singular values."""
    if matrix.shape[0] > matrix.shape[1]:
        right, left = truncated_svd(matrix.T, rank)
        return left.T, right.T
    precise = matrix.double()
    basis = leading_directions(precise, rank)
    rest = basis.T @ precise
    root = rest.norm(dim=1).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return (basis * root).to(matrix.dtype), (rest / root[:, None]).to(matrix.dtype)


def balance_(*parameters: Tensor) -> None:
    """Scale tensors to equal norms without changing their product: gradients then reach all of them alike."""
    norms = torch.stack([parameter.norm() for parameter in parameters])
    if bool((norms > 0).all()):
        for parameter, factor in zip(parameters, norms.log().mean().exp() / norms, strict=True):
            parameter.mul_(factor)
