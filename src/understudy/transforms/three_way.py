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

from .base import Transform, known_positions


class Dimensions(NamedTuple):
    """out = b·a, in = c·d."""

    a: int
    b: int
    c: int
    d: int


class Order(NamedTuple):
    """One way to contract: which products of factors are taken before the input is touched."""

    merge_out: bool  # O into M first
    merge_in: bool  # N into M first
    per_call: int  # mult-adds of merging
    per_vector: int  # mult-adds for each input vector
    middle: str = "formed"  # M is one matrix; Tucker has orders that keep it in parts


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return small + [n // k for k in reversed(small) if k * k != n]


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

    _, b, c = min(unevenness(b, c) for b in _divisors(out_features) for c in _divisors(in_features))
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
    def orders(cls, in_features: int, out_features: int, knob: int) -> list[Order]:
        """The contraction orders that can be the cheapest."""
        return cls.formed_orders(in_features, out_features, knob)

    @classmethod
    def formed_orders(cls, in_features: int, out_features: int, knob: int) -> list[Order]:
        """Those with M as one matrix, short of forming W."""
        a, b, c, d = split(in_features, out_features)
        p, q = cls.outer_ranks(in_features, out_features, knob)
        once = cls.middle_mult_adds(in_features, out_features, knob)
        into, across, out_of = c * d * q, b * p * c * q, b * p * a
        return [
            Order(False, False, once, into + across + out_of),
            Order(True, False, once + a * across, into + out_features * c * q),
            Order(False, True, once + d * across, b * p * in_features + out_of),
        ]

    @classmethod
    def best_order(cls, in_features: int, out_features: int, knob: int, positions: int) -> Order:
        """The order with the fewest mult-adds for this many vectors.

        A plain loop: torch.compile cannot trace min(key=…) over a symbolic number of vectors.
        """
        best, *others = cls.orders(in_features, out_features, knob)
        for other in others:
            if other.per_call + positions * other.per_vector < best.per_call + positions * best.per_vector:
                best = other
        return best

    @classmethod
    def mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int = 1) -> int:
        """By the best order."""
        order = cls.best_order(in_features, out_features, knob, positions)
        return order.per_call + positions * order.per_vector

    @classmethod
    def _forming(cls, in_features: int, out_features: int, knob: int) -> tuple[int, bool]:
        """Mult-adds of forming W by the cheaper side first, and whether that is the output's."""
        _, out_first, in_first = cls.formed_orders(in_features, out_features, knob)
        p, q = cls.outer_ranks(in_features, out_features, knob)
        a, b, c, d = split(in_features, out_features)
        by_out = out_first.per_call + a * b * c * q * d
        by_in = in_first.per_call + a * b * p * c * d
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

    def order_for(self, positions: int) -> Order:
        """The best order for a call on so many vectors."""
        return self.best_order(self.in_features, self.out_features, self.knob, known_positions(positions))

    def _stages(self, order: Order) -> list[Tensor]:
        """The matrices to apply in turn, each to consecutive slices of the vector."""
        middle = self.middle()
        if order.merge_out:
            return [self.in_factor, self._merge_out(middle)]
        if order.merge_in:
            return [self._merge_in(middle), self.out_factor]
        return [self.in_factor, middle, self.out_factor]

    def structured(self, x: Tensor) -> Tensor:
        """One matrix product a stage, rows being slices of the vectors."""
        leading = x.shape[:-1]
        for stage in self._stages(self.order_for(x.numel() // self.in_features)):  # (rows, columns)
            x = x.reshape(-1, stage.shape[1]) @ stage.T
        return x.reshape(*leading, self.out_features)

    def structured_columns(self, x: Tensor) -> Tensor:
        """The same with the vectors as columns: nothing is transposed in memory."""
        batch, channels, positions = x.shape
        for stage in self._stages(self.order_for(batch * positions)):
            rows, columns = stage.shape
            slices = channels // columns
            x = x.reshape(batch * slices, columns, positions)
            x = torch.bmm(stage.expand(batch * slices, rows, columns), x)
            channels = slices * rows
        return x.reshape(batch, self.out_features, positions)

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
