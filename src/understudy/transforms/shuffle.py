"""Linear ShuffleNet: two grouped maps with a riffle shuffle between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .base import Shapes
from .canonical import canonical
from .numerics import truncated_svd
from .orders import Order
from .stages import Blocks, Permute, Product, State
from .two_factors import TwoFactors


def bottleneck(out_features: int) -> int:
    """The width between the two grouped maps: out/4."""
    return max(1, out_features // 4)


class _Route(NamedTuple):
    """Hidden channels from a group of the input to a group of the output, and the block of W they make."""

    in_group: int
    out_group: int
    rows: slice  # of W
    columns: slice
    before: Tensor  # in their groups: rows of B1
    after: Tensor  # columns of B2


class Shuffle(TwoFactors):
    """W = B2 P B1: g diagonal blocks, a riffle shuffle, g diagonal blocks; between them b = out/4 channels.

    Cost: (in + out)·b/g parameters and as many mult-adds a vector.
    """

    name = "shuffle"
    knob_name = "groups"
    is_closed_inside = True
    first: nn.Parameter  # B1, (g, b/g, in/g)
    second: nn.Parameter  # B2, (g, out/g, b/g)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """The group counts that divide all three widths, most groups (cheapest) first."""
        common = math.gcd(in_features, bottleneck(out_features), out_features)
        return tuple(groups for groups in range(common, 0, -1) if common % groups == 0)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """The fewest groups that cost no more than `scale` of one group."""
        legal = cls.knobs(in_features, out_features)
        return next((groups for groups in reversed(legal) if groups * scale >= 1), legal[0])

    @classmethod
    def nearest_knob(cls, in_features: int, out_features: int, knob: int) -> int:
        """The legal count nearest to `knob`; of two as near, the one with fewer parameters."""
        if isinstance(knob, bool) or not isinstance(knob, int) or knob < 1:
            raise ValueError(f"groups {knob!r} is not a whole number of at least 1")
        return min(cls.knobs(in_features, out_features), key=lambda groups: abs(groups - knob))

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The blocks of B1 and of B2."""
        middle = bottleneck(out_features) // knob
        return {"first": (knob, middle, in_features // knob), "second": (knob, out_features // knob, middle)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Two grouped products; the shuffle moves data only."""
        per_vector = (in_features + out_features) * bottleneck(out_features) // knob
        return (Order("B1,P,B2", 0, per_vector, whole=knob == 1, run=in_features // knob),)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """B2 applied to the columns of P B1, as one dense matrix."""
        return out_features * bottleneck(out_features) // knob * in_features

    def stages(self, order: str) -> State:  # noqa: ARG002
        """One group is a plain bottleneck: there is nothing to shuffle."""
        groups, middle, _ = self.first.shape
        if groups == 1:
            return Product(self.first[0]), Product(self.second[0])
        return Blocks(self.first), Permute((groups, middle), (1, 0)), Blocks(self.second)

    def matrix(self) -> Tensor:
        """B2 · (P B1)."""
        groups, middle, _ = self.first.shape
        shuffled = _riffle(torch.block_diag(*self.first), groups, dim=0)  # P B1, (b, in)
        return torch.bmm(self.second, shuffled.reshape(groups, middle, -1)).reshape(self.out_features, -1)

    def entry_std(self, std: float) -> float:
        """Summed over W, each of b hidden channels joins out/g outputs with in/g inputs."""
        return float((std * self.knob / bottleneck(self.out_features) ** 0.5) ** 0.5)

    def _routes(self) -> Iterator[_Route]:
        """Block (k, i) of W depends only on the hidden channels from group i to group k."""
        groups, middle, width = self.first.shape
        height, device = self.second.shape[1], self.first.device
        source = _riffle(torch.arange(groups * middle), groups, dim=0)  # position after P → channel before it
        for out_group, channels in enumerate(source.reshape(groups, middle)):
            rows = slice(out_group * height, (out_group + 1) * height)
            for in_group in range(groups):
                slots = (channels // middle == in_group).nonzero().flatten()
                columns = slice(in_group * width, (in_group + 1) * width)
                before = (channels[slots] % middle).to(device)
                yield _Route(in_group, out_group, rows, columns, before, slots.to(device))

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """Exact: every block is the nearest of as low a rank as it has hidden channels."""
        self.first.zero_()
        self.second.zero_()
        for route in self._routes():
            left, right = truncated_svd(matrix[route.rows, route.columns], len(route.after))
            self._take_(route, left, right)

    @torch.no_grad()
    def project_inside_(self, kernel: Tensor) -> Tensor:
        """Every block of the kernel as so many terms u ⊗ v ⊗ taps."""
        self.first.zero_()
        self.second.zero_()
        groups, middle, width = self.first.shape
        taps = kernel.new_zeros(groups, middle, kernel.shape[2], dtype=torch.float64)
        for route in self._routes():
            block = kernel[route.rows, route.columns]
            most = min(len(block), width * kernel.shape[2])
            if len(route.after):
                left, right, own = canonical(block, min(most, len(route.after)))
                self._take_(route, left, right)
                taps[route.in_group, route.before[: len(own)]] = own
        return taps.flatten(0, 1)

    def _take_(self, route: _Route, left: Tensor, right: Tensor) -> None:
        """Set the factors of a block; it has no more directions than its smaller side."""
        used = slice(right.shape[0])
        self.second[route.out_group][:, route.after[used]] = left.to(self.second.dtype)
        self.first[route.in_group][route.before[used]] = right.to(self.first.dtype)


def _riffle(x: Tensor, groups: int, dim: int) -> Tensor:
    """Interleave `groups` equal runs along `dim`, counted from the front."""
    runs = (*x.shape[:dim], groups, x.shape[dim] // groups, *x.shape[dim + 1 :])
    return x.reshape(runs).transpose(dim, dim + 1).reshape(x.shape)
