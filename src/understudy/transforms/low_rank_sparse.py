"""A low rank and a few entries of their own (Zhou, Tao 2011; SLTrain: Han et al. 2024, arXiv:2406.02214)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .base import Shapes, Transform
from .low_rank import low_rank_factors
from .metric import Metric
from .numerics import truncated_svd
from .orders import Order
from .refine import refine_
from .stages import Product, State

_SWEEPS = 12
_FEW, _SHORT = 2**8, 2**15  # columns that one byte and two can name
_ENOUGH = 1e-3  # a sweep that gains a smaller share of the error is the last


def entries_a_row(in_features: int, out_features: int, rank: int) -> int:
    """A quarter as many entries as the factors have, shared out over the rows: at least one each."""
    return min(in_features, max(1, rank * (in_features + out_features) // (4 * out_features)))


class LowRankSparse(Transform):
    """W = U V + S, rank r, with e entries in every row of S: the few large ones that a low rank misses.

    Cost: r (in + out) + out·e parameters and as many mult-adds a vector; e ≈ r (in + out) / (4·out).

    A draw spreads the entries evenly by the seed. A fit puts them where the low rank errs most; so their
    columns are part of the state dict, two bytes an entry (four where in > 32,767).
    """

    name = "low_rank_sparse"
    knob_name = "rank"
    has_rank = True
    descends = True
    v: nn.Parameter  # (r, in)
    u: nn.Parameter  # (out, r)
    values: nn.Parameter  # (out·e,)
    index: Tensor  # the column of each value, (out·e,), int32

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Every rank a matrix of this shape can have."""
        return range(1, min(in_features, out_features) + 1)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The two factors, then the entries row by row."""
        entries = out_features * entries_a_row(in_features, out_features, knob)
        return {"v": (knob, in_features), "u": (out_features, knob), "values": (entries,)}

    @classmethod
    def index_bytes(cls, in_features: int, out_features: int, knob: int) -> int:
        """A column for every entry."""
        entries = out_features * entries_a_row(in_features, out_features, knob)
        return entries * (2 if in_features <= _SHORT else 4)

    @classmethod
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:
        """An output of S sums its entries in one row."""
        found = super().fans(in_features, out_features, knob)
        return found | {"values": entries_a_row(in_features, out_features, knob)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Through the bottleneck, and past it."""
        return (Order("VU+S", 0, cls.params(in_features, out_features, knob)),)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """One product of the two factors; entries are added."""
        return out_features * knob * in_features

    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw the parameters, and the pattern anew: after `to_empty` both are needed."""
        super().reset_parameters(std, generator)
        index = torch.empty(self.values.shape, dtype=torch.int32, device=self.values.device)
        if not index.is_meta:
            entries = len(self.values) // self.out_features
            starts = np.random.RandomState(self.seed % 2**32).randint(0, self.in_features, self.out_features)
            places = np.arange(entries) * (self.in_features // entries)
            index.copy_(torch.from_numpy((starts[:, None] + places).flatten() % self.in_features))
        self.register_buffer("index", index, persistent=False)

    def entry_std(self, std: float) -> float:
        """Of the factors: an entry of U V is a sum of r products, and as large as one of S."""
        return float((self._part(std) ** 2 / self.knob) ** 0.25)

    def _part(self, std: float) -> float:
        """Standard deviation of an entry of U V, and of S where it has one."""
        return float(std / (1 + len(self.values) / (self.in_features * self.out_features)) ** 0.5)

    def sample(self, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
        """The entries of S are as large as those of U V."""
        drawn = super().sample(shape, std, generator)
        return drawn if len(shape) > 1 else drawn * (self._part(std) / self.entry_std(std))

    def leave_to_the_graph_(self) -> None:
        """The columns take as few bytes in an exported graph as they can."""
        few = torch.uint8 if self.in_features <= _FEW else torch.int16
        self.index = self.index.to(few if self.in_features <= _SHORT else torch.int32)

    def stages(self, order: str) -> State:  # noqa: ARG002
        """One stage, the sum of both."""
        return (_Sum(Product(self.v), Product(self.u), self.values, self.index),)

    def matrix(self) -> Tensor:
        """U V, with the entries added in their places."""
        low = self.u @ self.v
        places = self.index.long().reshape(self.out_features, -1)
        return low.scatter_add(1, places, self.values.reshape(places.shape).to(low.dtype))

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The best low rank for the entries, the best entries for the low rank, in turn: the error falls."""
        target = matrix.double()
        u, v, values, index = (held.detach().clone() for held in (self.u, self.v, self.values, self.index))
        sparse, error = self._placed(values.double(), index.long()), float((self.matrix() - target).norm())
        left, right = truncated_svd(target, self.knob)
        if float((left @ right - target).norm()) < error:
            sparse = torch.zeros_like(target)  # a low rank alone is nearer than the present parameters
        for _ in range(_SWEEPS):
            found = truncated_svd(target - sparse, self.knob)
            chosen = self._largest(target - found[0] @ found[1])
            sparse = self._placed(*chosen)
            before, now = error, float((sparse + found[0] @ found[1] - target).norm())
            if now < error:
                (u, v), (values, index), error = found, chosen, now
            if before - now <= _ENOUGH * before:
                break
        self._set_(u, v, values, index)

    @torch.no_grad()
    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        """The low rank that is exact in the metric, entries where it errs most there, if that is nearer."""
        self.project_(matrix)
        if metric is None:
            return
        plain = float(metric.loss(self.matrix() - matrix))
        kept = self.u.clone(), self.v.clone(), self.values.clone(), self.index.clone()
        u, v = low_rank_factors(matrix.double(), self.knob, metric)
        rest = matrix.double() - u @ v
        scale = metric.covariance.diagonal().sqrt()
        values, index = self._largest(rest * scale)
        self._set_(u, v, values / scale[index], index)
        if not float(metric.loss(self.matrix() - matrix)) < plain:
            self._set_(*kept)
        refine_(self, self.matrix, matrix, metric)

    def _largest(self, rest: Tensor) -> tuple[Tensor, Tensor]:
        """The largest entries of every row: values and columns, (out·e,)."""
        index = rest.abs().topk(len(self.values) // self.out_features, dim=1).indices.sort(1).values
        return rest.gather(1, index).flatten(), index.flatten()

    def _placed(self, values: Tensor, index: Tensor) -> Tensor:
        """S."""
        shape = (self.out_features, self.in_features)
        rows = (self.out_features, -1)
        return values.new_zeros(shape).scatter(1, index.reshape(rows), values.reshape(rows))

    def _set_(self, u: Tensor, v: Tensor, values: Tensor, index: Tensor) -> None:
        for held, value in ((self.u, u), (self.v, v), (self.values, values), (self.index, index)):
            held.copy_(value)

    def get_extra_state(self) -> Tensor:
        """The columns of the entries, in few bytes."""
        return self.index.to(torch.int16 if self.in_features <= _SHORT else torch.int32)

    def set_extra_state(self, state: Any) -> None:
        """Take over the columns of a loaded state dict; the pattern may never have been drawn here."""
        if state.numel() and not 0 <= int(state.min()) <= int(state.max()) < self.in_features:
            raise ValueError(
                f"columns {int(state.min())}..{int(state.max())} are not in 0..{self.in_features - 1}"
            )
        self.register_buffer("index", state.to(self.values.device, torch.int32), persistent=False)


class _Sum(NamedTuple):
    """U V x + S x; S gathers the inputs that it needs."""

    v: Product
    u: Product
    values: Tensor  # (out·e,)
    places: Tensor  # (out·e,)

    def rows(self, x: Tensor) -> Tensor:
        """Vectors as rows: one position each."""
        low = self.u.rows(self.v.rows(x))
        return low + self._gathered(x[:, :, None])[:, :, 0].to(low.dtype)

    def columns(self, x: Tensor) -> Tensor:
        """Vectors as columns."""
        low = self.u.columns(self.v.columns(x))
        return low + self._gathered(x).to(low.dtype)

    def _gathered(self, x: Tensor) -> Tensor:
        shape = (self.u.weight.shape[0], -1)
        made: Tensor = _Gathered.apply(  # type: ignore[no-untyped-call]
            x, self.values.reshape(shape), self.places.reshape(shape)
        )
        return made


class _Gathered(torch.autograd.Function):
    """S x on (batch, in, positions), one entry of every row at a time: only the input is kept."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, values: Tensor, places: Tensor) -> Tensor:
        out = x.index_select(1, places[:, 0]) * values[:, :1]
        for value, place in zip(values.T[1:], places.T[1:], strict=True):
            out = out + x.index_select(1, place) * value[:, None]
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, values, places = ctx.saved_tensors
        (gradient,) = gradients
        of_x, of_values = torch.zeros_like(x), []
        for value, place in zip(values.T, places.T, strict=True):
            of_values.append((gradient * x.index_select(1, place)).sum((0, 2)))
            of_x = of_x.index_add(1, place, (gradient * value[:, None]).to(x.dtype))
        return of_x, torch.stack(of_values, dim=1).to(values.dtype), None
