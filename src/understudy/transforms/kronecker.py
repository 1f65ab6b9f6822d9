"""Sums of Kronecker products: the nearest is an SVD of the entries rearranged (Van Loan, Pitsianis 1993)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .base import Shapes, Transform
from .numerics import divisors, truncated_svd
from .orders import Order
from .stages import Product, State


class Sides(NamedTuple):
    """A is out_a × in_a, B is out_b × in_b."""

    out_a: int
    in_a: int
    out_b: int
    in_b: int


_SIDES: dict[tuple[int, int], Sides] = {}  # a plain memo: torch.compile traces through it


def sides(in_features: int, out_features: int) -> Sides:
    """The two shapes with the fewest entries together; of those, the four sides most nearly equal.

    >>> sides(640, 640)
    Sides(out_a=20, in_a=32, out_b=32, in_b=20)
    """
    shape = (in_features, out_features)
    if shape not in _SIDES:
        every = [
            Sides(out_a, in_a, out_features // out_a, in_features // in_a)
            for out_a in divisors(out_features)
            for in_a in divisors(in_features)
        ]
        _SIDES[shape] = min(every, key=_unevenness)
    return _SIDES[shape]


def _unevenness(made: Sides) -> tuple[float, ...]:
    spread = sum(math.log(size) ** 2 for size in made)  # the sum of the logarithms is the same for all
    return (made.out_a * made.in_a + made.out_b * made.in_b, round(spread, 9), *made)


class Kronecker(Transform):
    """W = Σ over t of A_t ⊗ B_t, with A of out_a × in_a and B of out_b × in_b.

    Cost: t (out_a·in_a + out_b·in_b) parameters; t·out_b·in_a (in_b + out_a) mult-adds a vector with B first.
    """

    name = "kronecker"
    knob_name = "terms"
    keeps_much = True  # the vectors between the factors
    a: nn.Parameter  # (out_a, in_a, t)
    b: nn.Parameter  # (t, out_b, in_b)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Up to the terms that hold every matrix."""
        out_a, in_a, out_b, in_b = sides(in_features, out_features)
        return range(1, min(out_a * in_a, out_b * in_b) + 1)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The factors of all terms."""
        out_a, in_a, out_b, in_b = sides(in_features, out_features)
        return {"a": (out_a, in_a, knob), "b": (knob, out_b, in_b)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Two matrix products on slices, either factor first: no term is formed."""
        out_a, in_a, out_b, in_b = sides(in_features, out_features)
        return (
            Order("B,A", 0, knob * out_b * in_a * (in_b + out_a), whole=in_a == 1),
            Order("A,B", 0, knob * out_a * in_b * (in_a + out_b), whole=in_b == 1),
        )

    @classmethod
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:
        """Of the two matrices, B first."""
        made = sides(in_features, out_features)
        return {"a": made.in_a * knob, "b": made.in_b}

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """One product of rank t, whose entries are then put in their places."""
        return knob * in_features * out_features

    def stages(self, order: str) -> State:
        """The terms lie side by side between the two products; the second sums over them."""
        out_a, in_a, out_b, in_b = sides(self.in_features, self.out_features)
        if order == "B,A":  # (in_a, in_b) → (in_a, t, out_b) → (out_a, out_b)
            return Product(self.b.reshape(-1, in_b), left=in_a), Product(self.a.flatten(1), right=out_b)
        a = self.a.transpose(1, 2).reshape(-1, in_a)  # (in_a, in_b) → (out_a, t, in_b) → (out_a, out_b)
        return Product(a, right=in_b), Product(self.b.transpose(0, 1).flatten(1), left=out_a)

    def matrix(self) -> Tensor:
        """All products of an entry of A with one of B, summed over the terms."""
        out_a, in_a, out_b, in_b = sides(self.in_features, self.out_features)
        entries = self.a.flatten(0, 1) @ self.b.flatten(1)  # (out_a·in_a, out_b·in_b)
        placed = entries.reshape(out_a, in_a, out_b, in_b).transpose(1, 2)
        return placed.reshape(self.out_features, self.in_features)

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of t products of two entries."""
        return float((std**2 / self.knob) ** 0.25)

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The truncated singular value decomposition of the entries rearranged: the nearest sum."""
        out_a, in_a, out_b, in_b = sides(self.in_features, self.out_features)
        entries = matrix.reshape(out_a, out_b, in_a, in_b).transpose(1, 2).reshape(out_a * in_a, -1)
        a, b = truncated_svd(entries, self.knob)
        self.a.copy_(a.reshape(self.a.shape))
        self.b.copy_(b.reshape(self.b.shape))
