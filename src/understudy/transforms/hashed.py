"""HashedNet: every entry of W reads one of M real weights, chosen by a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Shapes, Transform
from .mixing import scattered, shuffled
from .numerics import clamp_knob
from .orders import Order

Indexing = Literal["balanced", "independent"]
_LARGEST = 2**31 - 1  # an index is int32


class Hashed(Transform):
    """W[i,j] = w[h(i,j)] for M real weights w and a fixed random h.

    Cost: M parameters, in · out mult-adds a vector.

    "balanced" deals one random permutation of the entries to the weights in turn: every weight is used, and
    its gradient is the sum over what it was dealt. "independent", as published, draws each index by itself,
    which leaves a share of the weights unused. Either way h follows from the seed by arithmetic (`mixing`),
    is never saved, and is computed in an exported graph.
    """

    name = "hashed"
    knob_name = "weights"
    options: ClassVar[dict[str, tuple[str, ...]]] = {"indexing": ("balanced", "independent")}
    weight: nn.Parameter  # (M,)
    index: Tensor  # entry → weight, int32
    order: Tensor  # the entries as they are dealt to the weights in turn, int32; empty when independent

    def __init__(
        self,
        in_features: int,
        out_features: int,
        knob: int,
        *,
        indexing: Indexing = "balanced",
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if indexing not in self.options["indexing"]:
            raise ValueError(f"indexing {indexing!r} is not one of {', '.join(self.options['indexing'])}")
        self.indexing: Indexing = indexing  # before the base class draws everything
        super().__init__(in_features, out_features, knob, seed=seed, device=device, dtype=dtype)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Any number of weights up to one an entry."""
        entries = in_features * out_features
        return range(1, entries + 1 if entries <= _LARGEST else 1)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """`scale` of the entries."""
        return clamp_knob(scale * in_features * out_features, cls.knobs(in_features, out_features))

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:  # noqa: ARG003
        """The real weights."""
        return {"weight": (knob,)}

    @classmethod
    def index_bytes(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """The seed, and how the index is drawn by it: two whole numbers."""
        return 16

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:  # noqa: ARG003
        """There is no cheaper way than the matrix: hashing saves memory, not work."""
        return ()

    @classmethod
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:  # noqa: ARG003
        """A weight stands in the matrix itself."""
        return {"weight": in_features}

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """A gather multiplies nothing."""
        return 0

    @staticmethod
    def expected_unused_share(in_features: int, out_features: int, knob: int) -> float:
        """Share of the weights that independent indexing leaves unused: (1 − 1/M)^N, near exp(−N/M)."""
        return float((1 - 1 / knob) ** (in_features * out_features))

    def unused_share(self) -> float:
        """Share of the weights that no entry reads."""
        used: int = self.index.unique().numel()
        return 1 - used / self.knob

    def _draw_index_(self) -> None:
        """Fill `index` and `order` from the seed, on the device of the weights."""
        device = self.weight.device
        entries = self.in_features * self.out_features
        index = torch.empty(entries, dtype=torch.int32, device=device)
        order = torch.empty(entries if self.indexing == "balanced" else 0, dtype=torch.int32, device=device)
        if device.type != "meta":
            if self.indexing == "independent":
                index.copy_(scattered(entries, self.knob, self.seed, device))
            else:
                places = shuffled(entries, [self.seed], device)[0]
                order[places] = torch.arange(entries, dtype=torch.int32, device=device)
                index.copy_(places % self.knob)
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("order", order, persistent=False)

    def _computed_index(self) -> Tensor:
        """The index by arithmetic on a range: in a graph it takes no memory of a file."""
        entries, device = self.in_features * self.out_features, self.weight.device
        if self.indexing == "independent":
            return scattered(entries, self.knob, self.seed, device)
        return shuffled(entries, [self.seed], device)[0] % self.knob

    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw the weights, and the index anew: after `to_empty` both are needed."""
        super().reset_parameters(std, generator)
        self._draw_index_()

    def leave_to_the_graph_(self) -> None:
        """The index follows from the seed: an exported graph computes it."""
        self.index, self.order = self.index[:1].clone(), self.order[:1].clone()

    def matrix(self) -> Tensor:
        """Gather the weights."""
        if torch.compiler.is_exporting():
            entries = self.weight.index_select(0, self._computed_index())
        elif self.indexing == "independent":
            entries = self.weight.index_select(0, self.index)
        else:
            entries = _BalancedGather.apply(self.weight, self.index, self.order)  # type: ignore[no-untyped-call]
        return entries.reshape(self.out_features, self.in_features)

    @classmethod
    def matrices(cls, alike: Sequence[Transform]) -> Tensor | None:
        """Gather from all weights at once."""
        hashed = [each for each in alike if isinstance(each, Hashed)]
        first = hashed[0]
        if first.indexing == "independent":
            return None
        shape = (len(hashed), first.out_features, first.in_features)
        device = first.weight.device
        places = shuffled(first.in_features * first.out_features, [each.seed for each in hashed], device)
        before = first.knob * torch.arange(len(hashed), device=device)[:, None]
        index = (places % first.knob + before).flatten()
        return torch.cat([each.weight for each in hashed]).index_select(0, index).reshape(shape)

    def entry_std(self, std: float) -> float:
        """Every entry of W is a weight."""
        return std

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The mean of the entries that share a weight: least squares."""
        entries = matrix.reshape(-1)
        if self.indexing == "balanced":
            share, more = divmod(entries.numel(), self.knob)
            uses = torch.full_like(entries[: self.knob], share)
            uses[:more] += 1
            means = _sum_runs(entries, self.order, self.knob) / uses
        else:
            sums = entries.new_zeros(self.knob).index_add_(0, self.index, entries)
            means = sums / self.index.bincount(minlength=self.knob).clamp(min=1)
        self.weight.copy_(means)

    def spec_options(self) -> dict[str, str]:
        """How the index is drawn."""
        return {"indexing": self.indexing}

    def get_extra_state(self) -> Tensor:
        """What the index follows from, so that a state dict means the same matrix wherever it is loaded."""
        return torch.tensor([self.seed, self.options["indexing"].index(self.indexing)])

    def set_extra_state(self, state: Any) -> None:
        """Take over the seed of a loaded state dict; the index may never have been drawn here."""
        seed, indexing = state.tolist()
        if self.options["indexing"][indexing] != self.indexing:
            raise ValueError(
                f"the state dict has {self.options['indexing'][indexing]} indexing, not {self.indexing}"
            )
        self.seed = seed
        self._draw_index_()


def _sum_runs(entries: Tensor, order: Tensor, weights: int) -> Tensor:
    """Sum the entries of each weight: a gather, then a plain sum; the first weights have one entry more."""
    share, more = divmod(order.numel(), weights)
    dealt, last = entries.index_select(0, order).split([share * weights, more])
    sums: Tensor = dealt.reshape(share, weights).sum(0) + F.pad(last, (0, weights - more))
    return sums


class _BalancedGather(torch.autograd.Function):
    """w[index]; the gradient gathers and sums instead of scattering, so it is deterministic."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, index: Tensor, order: Tensor) -> Tensor:  # noqa: ARG004
        return weight.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        weight, _, order = inputs
        ctx.save_for_backward(order)
        ctx.weights = weight.numel()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return _sum_runs(gradients[0], order, ctx.weights), None, None
