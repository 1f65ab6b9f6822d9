"""Tucker over three dimensions, applied without forming the matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Shapes, balance_, leading_directions
from .three_way import ThreeWay, split


class Tucker(ThreeWay):
    """W[(b,a),(c,d)] = Σ core[p,m,q] O[a,p] B[(b,c),m] N[q,d], ranks in proportion to the dimensions.

    Cost: p·m·q + a·p + b·c·m + q·d parameters; b·c·p·m·q mult-adds a call, then as Tensor-Train a vector.
    """

    name = "tucker"
    knob_name = "rank"
    core: nn.Parameter  # (p, m, q)
    middle_factor: nn.Parameter  # B, (b·c, m)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """The rank of the largest dimension."""
        a, b, c, d = split(in_features, out_features)
        return range(1, max(a, b * c, d) + 1)

    @classmethod
    def ranks(cls, in_features: int, out_features: int, knob: int) -> tuple[int, int, int]:
        """⌈dimension · knob / largest dimension⌉ for each of the three."""
        a, b, c, d = split(in_features, out_features)
        largest = max(a, b * c, d)
        p, m, q = (-(-size * knob // largest) for size in (a, b * c, d))
        return p, m, q

    @classmethod
    def outer_ranks(cls, in_features: int, out_features: int, knob: int) -> tuple[int, int]:
        """The ranks on the output's and the input's side."""
        p, _, q = cls.ranks(in_features, out_features, knob)
        return p, q

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The core and its three factors."""
        a, b, c, d = split(in_features, out_features)
        p, m, q = cls.ranks(in_features, out_features, knob)
        return {"out_factor": (a, p), "core": (p, m, q), "middle_factor": (b * c, m), "in_factor": (q, d)}

    @classmethod
    def middle_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """The core times its middle factor."""
        p, m, q = cls.ranks(in_features, out_features, knob)
        _, b, c, _ = split(in_features, out_features)
        return b * c * p * m * q

    def middle(self) -> Tensor:
        """M[(b,p),(c,q)] = Σ B[(b,c),m] core[p,m,q]."""
        _, b, c, _ = split(self.in_features, self.out_features)
        p, m, q = self.core.shape
        expanded = self.middle_factor @ self.core.transpose(0, 1).reshape(m, p * q)  # (b·c, p·q)
        return expanded.reshape(b, c, p, q).transpose(1, 2).reshape(b * p, c * q)

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of p·m·q products of four entries."""
        return float((std**2 / self.core.numel()) ** (1 / 8))

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The higher-order SVD: each factor spans the leading directions of its own unfolding."""
        tensor = self._tensor(matrix.double())  # (a, b·c, d)
        bases = [
            leading_directions(tensor.movedim(mode, 0).flatten(1), rank)
            for mode, rank in enumerate(self.core.shape)
        ]
        self.core.copy_(torch.einsum("ijk,ia,jb,kc->abc", tensor, *bases))
        self.out_factor.copy_(bases[0])
        self.middle_factor.copy_(bases[1])
        self.in_factor.copy_(bases[2].T)
        balance_(self.out_factor, self.core, self.middle_factor, self.in_factor)
