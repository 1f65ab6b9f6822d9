"""Tucker over three dimensions, applied without forming the matrix."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Shapes, balance_, leading_directions
from .three_way import Order, ThreeWay, split


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

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> list[Order]:
        """With M as one matrix; or, for few vectors or a small m, with the core and B applied in turn.

        The best of these is within a quarter of the best of all contraction trees, and mostly is it.
        """
        a, b, c, d = split(in_features, out_features)
        p, m, q = cls.ranks(in_features, out_features, knob)
        orders = cls.formed_orders(in_features, out_features, knob)
        for merge_out, merge_in in itertools.product(
            (False, True), repeat=2
        ):  # O and N into the core, or not
            rows, columns = (a if merge_out else p), (d if merge_in else q)
            once = (a * p * m * q if merge_out else 0) + (d * q * m * rows if merge_in else 0)
            enter, leave = (0 if merge_in else c * d * q), (0 if merge_out else b * p * a)
            core_first = enter + c * columns * rows * m + b * c * m * rows + leave
            factor_first = enter + b * m * c * columns + b * m * columns * rows + leave
            orders.append(Order(merge_out, merge_in, once, core_first, "core, B, O"))
            orders.append(Order(merge_out, merge_in, once, factor_first, "N, B, core"))
            if not merge_out:
                out_early = enter + c * columns * p * m + c * m * p * a + b * c * m * a
                orders.append(Order(merge_out, merge_in, once, out_early, "core, O, B"))
            if not merge_in:
                in_late = b * m * c * d + b * m * d * q + b * m * q * rows + leave
                orders.append(Order(merge_out, merge_in, once, in_late, "B, N, core"))
        return orders

    def structured(self, x: Tensor) -> Tensor:
        """By the best order for as many vectors."""
        order = self.order_for(x.numel() // self.in_features)
        return super().structured(x) if order.middle == "formed" else self._in_parts(x, order)

    def structured_columns(self, x: Tensor) -> Tensor:
        """By the best order for as many vectors."""
        order = self.order_for(x.shape[0] * x.shape[2])
        return super().structured_columns(x) if order.middle == "formed" else self._in_parts(x.mT, order).mT

    def _in_parts(self, x: Tensor, order: Order) -> Tensor:
        """Apply N, core, B and O without forming M; O or N may be merged into the core."""
        _, b, c, d = split(self.in_features, self.out_features)
        leading = x.shape[:-1]
        core: Tensor = self.core  # (p, m, q)
        if order.merge_out:
            core = (self.out_factor @ core.flatten(1)).reshape(-1, *core.shape[1:])  # (a, m, q)
        if order.merge_in:
            core = core @ self.in_factor  # (rows, m, d)
        rows, m, columns = core.shape
        factor = self.middle_factor.reshape(b, c, m)
        h = x.reshape(-1, c, d)  # (n, c, d)
        if not order.merge_in and order.middle != "B, N, core":
            h = h @ self.in_factor.T  # (n, c, q)
        if order.middle.startswith("core"):
            h = h @ core.permute(2, 1, 0).reshape(columns, m * rows)  # (n, c, m·rows)
            h = h.reshape(-1, c * m, rows)
            if order.middle == "core, O, B":
                h = h @ self.out_factor.T  # (n, c·m, a)
            h = torch.matmul(factor.reshape(b, c * m), h)  # (n, b, rows)
        else:
            h = torch.matmul(factor.transpose(1, 2).reshape(b * m, c), h)  # (n, b·m, d or columns)
            if order.middle == "B, N, core":
                h = h @ self.in_factor.T  # (n, b·m, q)
            h = h.reshape(-1, b, m * columns) @ core.reshape(rows, m * columns).T  # (n, b, rows)
        if not order.merge_out and order.middle != "core, O, B":
            h = h @ self.out_factor.T  # (n, b, a)
        return h.reshape(*leading, self.out_features)

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
