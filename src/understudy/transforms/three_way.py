"""What Tensor-Train and Tucker share: W seen as a three-way tensor that splits cleanly into (out, in).

With out = b·a and in = c·d, the tensor has the dimensions a, b·c and d, and

    W = (I_b ⊗ O) · M · (I_c ⊗ N),      O: a × p,   M: b·p × c·q,   N: q × d.

Read from the right this is three plain matrix products on slices of a vector: no W, no permutation.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .base import Transform
from .numerics import divisors
from .orders import Order
from .stages import Product, State


class Dimensions(NamedTuple):
    """out = b·a, in = c·d."""

    a: int
    b: int
    c: int
    d: int


_SPLITS: dict[tuple[int, int], Dimensions] = {}  # a plain memo: torch.compile traces through it


def split(in_features: int, out_features: int) -> Dimensions:
    """The b and c that make a, b·c and d most nearly equal, by their spread in logarithms."""
    shape = (in_features, out_features)
    if shape not in _SPLITS:
        _SPLITS[shape] = _best_split(in_features, out_features)
    return _SPLITS[shape]


def _best_split(in_features: int, out_features: int) -> Dimensions:
    third = math.log(in_features * out_features) / 3

    def unevenness(b: int, c: int) -> tuple[float, int, int]:
        sizes = (out_features // b, b * c, in_features // c)
        return round(sum((math.log(size) - third) ** 2 for size in sizes), 9), b, c

    _, b, c = min(unevenness(b, c) for b in divisors(out_features) for c in divisors(in_features))
    return Dimensions(out_features // b, b, c, in_features // c)


class ThreeWay(Transform):
    """W = (I ⊗ O) M (I ⊗ N); a subclass says what the ranks are and how M is stored."""

    keeps_much = True  # the vectors between the factors
    out_factor: torch.nn.Parameter  # O, (a, p)
    in_factor: torch.nn.Parameter  # N, (q, d)

    @classmethod
    @abc.abstractmethod
    def outer_ranks(cls, in_features: int, out_features: int, knob: int) -> tuple[int, int]:
        """The ranks p and q on the two sides of M."""

    @classmethod
    @abc.abstractmethod
    def middle_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Mult-adds of forming M from its parameters."""

    @abc.abstractmethod
    def middle(self) -> Tensor:
        """M, (b·p, c·q)."""

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """The contraction orders that can be the cheapest: M as one matrix, O or N merged into it or not."""
        a, b, c, d = split(in_features, out_features)
        p, q = cls.outer_ranks(in_features, out_features, knob)
        once = cls.middle_mult_adds(in_features, out_features, knob)
        into, across, out_of = c * d * q, b * p * c * q, b * p * a
        return (
            Order("N,M,O", once, into + across + out_of, whole=c == 1, run=d),
            Order("N,OM", once + a * across, into + out_features * c * q, whole=c == 1, run=d),
            Order("MN,O", once + d * across, b * p * in_features + out_of, whole=True),
        )

    @classmethod
    def _forming(cls, in_features: int, out_features: int, knob: int) -> tuple[int, bool]:
        """Mult-adds of forming W by the cheaper side first, and whether that is the output's."""
        p, q = cls.outer_ranks(in_features, out_features, knob)
        a, b, c, d = split(in_features, out_features)
        once = cls.middle_mult_adds(in_features, out_features, knob)
        by_out = once + a * b * p * c * q + a * b * c * q * d
        by_in = once + d * b * p * c * q + a * b * p * c * d
        return min(by_out, by_in), by_out <= by_in

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Three factors, the cheaper side first."""
        return cls._forming(in_features, out_features, knob)[0]

    def _merge_out(self, middle: Tensor) -> Tensor:
        a, b, _, _ = split(self.in_features, self.out_features)
        merged = torch.matmul(self.out_factor, middle.reshape(b, -1, middle.shape[1]))  # (b, a, columns)
        return merged.reshape(b * a, middle.shape[1])

    def _merge_in(self, middle: Tensor) -> Tensor:
        merged = middle.reshape(-1, self.in_factor.shape[0]) @ self.in_factor  # (rows · c, d)
        return merged.reshape(middle.shape[0], self.in_features)

    def stages(self, order: str) -> State:
        """N on every slice of the input, M, O on every slice that leaves it; what is merged is one matrix."""
        _, b, c, _ = split(self.in_features, self.out_features)
        middle = self.middle()
        if order == "N,OM":
            return Product(self.in_factor, left=c), Product(self._merge_out(middle))
        if order == "MN,O":
            return Product(self._merge_in(middle)), Product(self.out_factor, left=b)
        return Product(self.in_factor, left=c), Product(middle), Product(self.out_factor, left=b)

    def matrix(self) -> Tensor:
        """(I ⊗ O) M (I ⊗ N), the cheaper side first."""
        _, out_first = self._forming(self.in_features, self.out_features, self.knob)
        if out_first:
            return self._merge_in(self._merge_out(self.middle()))
        return self._merge_out(self._merge_in(self.middle()))

    def _tensor(self, matrix: Tensor) -> Tensor:
        """`matrix` as the three-way tensor, (a, b·c, d)."""
        a, b, c, d = split(self.in_features, self.out_features)
        return matrix.reshape(b, a, c, d).permute(1, 0, 2, 3).reshape(a, b * c, d)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """Proportional to the largest rank."""
        legal = cls.knobs(in_features, out_features)
        return min(max(round(scale * legal[-1]), 1), legal[-1])

    @classmethod
    @abc.abstractmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Ranks from 1 to where nothing is lost."""
