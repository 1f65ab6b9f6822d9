"""Rank-factorised: a linear bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Shapes, Transform, clamp_knob, truncated_svd


class LowRank(Transform):
    """W = U V, rank r.

    Cost: r (in + out) parameters and as many mult-adds a vector.
    """

    name = "low_rank"
    knob_name = "rank"
    v: nn.Parameter  # (r, in)
    u: nn.Parameter  # (out, r)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Every rank a matrix of this shape can have."""
        return range(1, min(in_features, out_features) + 1)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """⌊scale · max(in, out)⌋, as published."""
        return clamp_knob(scale * max(in_features, out_features), cls.knobs(in_features, out_features))

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The way into the bottleneck, and out of it."""
        return {"v": (knob, in_features), "u": (out_features, knob)}

    @classmethod
    def mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int = 1) -> int:
        """Two matrix products."""
        return positions * knob * (in_features + out_features)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """One product of the two factors."""
        return out_features * knob * in_features

    def structured(self, x: Tensor) -> Tensor:
        """Through the bottleneck."""
        return F.linear(F.linear(x, self.v), self.u)

    def factors(self) -> tuple[Tensor, Tensor]:
        """A convolution runs V with its whole kernel, then U at every pixel."""
        return self.v, self.u

    def matrix(self) -> Tensor:
        """U V."""
        return self.u @ self.v

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of r products of two entries."""
        return float((std**2 / self.knob) ** 0.25)

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The truncated singular value decomposition: the nearest matrix of this rank."""
        u, v = truncated_svd(matrix, self.knob)
        self.u.copy_(u)
        self.v.copy_(v)
