"""Tucker over three dimensions, applied without forming the matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .base import Shapes
from .numerics import balance_, leading_directions
from .orders import Order
from .stages import Product, State
from .three_way import ThreeWay, split

# The orders that keep M in parts: factors in turn, those written together merged into the core G first.
_IN_PARTS = (
    "N,G,B,O", "N,B,G,O", "N,G,O,B", "B,N,G,O",
    "N,OG,B", "N,B,OG", "B,N,OG",
    "GN,B,O", "B,GN,O", "GN,O,B",
    "OGN,B", "B,OGN",
)  # fmt: skip


class _Place(NamedTuple):
    """A matrix of rows × columns on the middle axis of channels seen as (left, columns, right)."""

    left: int
    rows: int
    columns: int
    right: int


class Tucker(ThreeWay):
    """W[(b,a),(c,d)] = Σ core[p,m,q] O[a,p] B[(b,c),m] N[q,d], ranks in proportion to the dimensions.

    Cost: p·m·q + a·p + b·c·m + q·d parameters; b·c·p·m·q mult-adds a call, then as Tensor-Train a vector.
    """

    name = "tucker"
    knob_name = "rank"
    has_rank = True
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
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:
        """Of the factors that run in turn, the core before the middle one."""
        c, d = split(in_features, out_features)[2:]
        p, m, q = cls.ranks(in_features, out_features, knob)
        return {"out_factor": p, "core": q, "middle_factor": c * m, "in_factor": d}

    @classmethod
    def middle_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """The core times its middle factor."""
        p, m, q = cls.ranks(in_features, out_features, knob)
        _, b, c, _ = split(in_features, out_features)
        return b * c * p * m * q

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """With M as one matrix; or, for few vectors or a small m, with the core and B applied in turn.

        The best of these is within a quarter of the best of all contraction trees, and mostly is it.
        """
        a, _, _, d = split(in_features, out_features)
        p, m, q = cls.ranks(in_features, out_features, knob)
        orders = list(super().orders(in_features, out_features, knob))
        for name in _IN_PARTS:
            merge_out, merge_in = "OG" in name, "GN" in name
            once = (a * p * m * q if merge_out else 0) + (d * q * m * (a if merge_out else p) * merge_in)
            places = cls._places(name, in_features, out_features, knob)
            per_vector = sum(math.prod(place) for place in places)
            first = places[0]
            whole, run = first.left == first.right == 1, first.columns if first.right == 1 else 0
            orders.append(Order(name, once, per_vector, whole, run))
        return tuple(orders)

    @classmethod
    def _places(cls, name: str, in_features: int, out_features: int, knob: int) -> list[_Place]:
        """Where each factor of an order in parts acts: on channels (c, d) at first, (b, a) at last."""
        a, b, c, d = split(in_features, out_features)
        p, m, q = cls.ranks(in_features, out_features, knob)
        core_first = name.index("G") < name.index("B")
        places = []
        left, right = c, d
        for factor in name.split(","):
            rows = a if "O" in factor else p
            if factor == "N":
                places.append(_Place(left, q, d, 1))
                right = q
            elif factor == "O":
                places.append(_Place(left, a, p, 1))
                right = a
            elif factor == "B":
                places.append(_Place(1, b, c * m, right) if core_first else _Place(1, b * m, c, right))
                left = b if core_first else b * m
            else:  # the core, which brings m where B has not yet
                places.append(_Place(c, m * rows, right, 1) if core_first else _Place(b, rows, m * right, 1))
                left, right = (c * m if core_first else b), rows
        return places

    def stages(self, order: str) -> State:
        """N, core, B and O in turn where M is not formed; O or N may be merged into the core."""
        if order not in _IN_PARTS:
            return super().stages(order)
        _, b, c, _ = split(self.in_features, self.out_features)
        core: Tensor = self.core  # (p, m, q)
        if "OG" in order:
            core = (self.out_factor @ core.flatten(1)).reshape(-1, *core.shape[1:])  # (a, m, q)
        if "GN" in order:
            core = core @ self.in_factor  # (rows, m, d)
        factor = self.middle_factor.reshape(b, c, -1)  # (b, c, m)
        if order.index("G") < order.index("B"):
            core = core.transpose(0, 1)  # (m, rows, columns)
        else:
            factor = factor.transpose(1, 2)  # (b, m, c)
        stages = []
        weights = {"N": self.in_factor, "O": self.out_factor, "B": factor}
        for name, place in zip(
            order.split(","),
            self._places(order, self.in_features, self.out_features, self.knob),
            strict=True,
        ):
            weight = weights.get(name, core).reshape(place.rows, place.columns)
            stages.append(Product(weight, place.left, place.right))
        return tuple(stages)

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
