"""Rank-factorised: a linear bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Shapes, Transform
from .numerics import clamp_knob, truncated_svd
from .orders import Order
from .stages import Product, State


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
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Through the bottleneck: two matrix products."""
        return (Order("V,U", 0, knob * (in_features + out_features), whole=True),)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """One product of the two factors."""
        return out_features * knob * in_features

    def stages(self, order: str) -> State:  # noqa: ARG002
        """Two plain products: a convolution runs V with its whole kernel, then U at every pixel."""
        return Product(self.v), Product(self.u)

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
