"""Rank-factorised: a linear bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .base import Shapes
from .canonical import canonical
from .metric import Metric
from .numerics import balance_, clamp_knob, truncated_svd
from .orders import Order
from .stages import Product, State
from .two_factors import TwoFactors


class LowRank(TwoFactors):
    """W = U V, rank r.

    Cost: r (in + out) parameters and as many mult-adds a vector.
    """

    name = "low_rank"
    knob_name = "rank"
    has_rank = True
    is_closed_form = True
    is_closed_inside = True
    is_for_auto = False  # `pivoted` holds the same matrices in less
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
        self.fit_(matrix)

    @torch.no_grad()
    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        """Exact in any metric: D W L is cut to rank r, and both factors taken back."""
        u, v = low_rank_factors(matrix, self.knob, metric)
        self.u.copy_(u)
        self.v.copy_(v)

    @torch.no_grad()
    def project_inside_(self, kernel: Tensor) -> Tensor:
        """Of r terms u ⊗ v ⊗ taps the nearest kernel that least squares in turn find."""
        u, v, taps = canonical(kernel, self.knob)
        self.u.copy_(u)
        self.v.copy_(v)
        return taps

    @classmethod
    def fit_losses(cls, matrix: Tensor, metric: Metric, knobs: Sequence[int], **options: Any) -> list[float]:  # noqa: ARG003
        """The energy of the singular values that each rank drops: one decomposition gives them all."""
        white = metric.whiten(matrix)
        gram = white @ white.T if white.shape[0] <= white.shape[1] else white.T @ white
        energies = torch.linalg.eigvalsh(gram).clamp(min=0)  # rising
        dropped = torch.cat([energies.new_zeros(1), energies.cumsum(0)])  # by how many are dropped
        return [float(dropped[len(energies) - knob]) for knob in knobs]


def low_rank_factors(matrix: Tensor, rank: int, metric: Metric | None) -> tuple[Tensor, Tensor]:
    """The best U (out, r) and V (r, in) with U V ≈ matrix, plainly or in a metric, of equal norms."""
    if metric is None:
        return truncated_svd(matrix, rank)
    u, v = truncated_svd(metric.whiten(matrix), rank)
    u, v = metric.whitened_out(u), metric.whitened_in(v)
    balance_(u, v)
    return u, v
