"""Tensor-Train over three dimensions, applied without forming the matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Shapes
from .numerics import balance_, leading_directions, truncated_svd
from .three_way import ThreeWay, split


class TensorTrain(ThreeWay):
    """W[(b,a),(c,d)] = Σ G1[a,p] G2[b,p,c,q] G3[q,d], ranks p and q at most r.

    Cost: a·p + p·(b·c)·q + q·d parameters; c·d·q + c·q·b·p + b·p·a mult-adds a vector.
    """

    name = "tensor_train"
    knob_name = "rank"
    has_rank = True
    core: nn.Parameter  # (b, p, c, q)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Up to the rank that holds every matrix."""
        a, b, c, d = split(in_features, out_features)
        return range(1, max(min(a, b * c * d), min(d, a * b * c)) + 1)

    @classmethod
    def outer_ranks(cls, in_features: int, out_features: int, knob: int) -> tuple[int, int]:
        """The knob, capped where a larger rank would add nothing."""
        a, b, c, d = split(in_features, out_features)
        return min(knob, a, b * c * d), min(knob, d, a * b * c)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """G1, G2, G3."""
        a, b, c, d = split(in_features, out_features)
        p, q = cls.outer_ranks(in_features, out_features, knob)
        return {"out_factor": (a, p), "core": (b, p, c, q), "in_factor": (q, d)}

    @classmethod
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:
        """Of the plain matrices that run in turn."""
        c, d = split(in_features, out_features)[2:]
        p, q = cls.outer_ranks(in_features, out_features, knob)
        return {"out_factor": p, "core": c * q, "in_factor": d}

    @classmethod
    def middle_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """M is stored as it is used."""
        return 0

    def middle(self) -> Tensor:
        """G2 as a matrix."""
        b, p, c, q = self.core.shape
        return self.core.reshape(b * p, c * q)

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of p·q products of three entries."""
        p, q = self.outer_ranks(self.in_features, self.out_features, self.knob)
        return float((std**2 / (p * q)) ** (1 / 6))

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """TT-SVD: cut the first rank, then the second."""
        b, p, c, q = self.core.shape
        unfolded = self._tensor(matrix.double()).flatten(1)  # (a, b·c·d)
        first = leading_directions(unfolded, p)  # (a, p)
        core, last = truncated_svd((first.T @ unfolded).reshape(p * b * c, -1), q)  # (p·b·c, q), (q, d)
        self.out_factor.copy_(first)
        self.core.copy_(core.reshape(p, b, c, q).transpose(0, 1))
        self.in_factor.copy_(last)
        balance_(self.out_factor, self.core, self.in_factor)
