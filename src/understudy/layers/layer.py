"""What every stand-in is: a transform, a bias, and an execution that says how it runs.

Each has `weight`, the dense weight it stands for, formed on demand: code that reads a layer's weight
instead of calling the layer (as torchvision's Swin does with its projections) still gets the right one.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from understudy._util.guard import the_network
from understudy.transforms import Transform
from understudy.transforms.orders import Order
from understudy.transforms.stages import State

from .execution import DEFAULT, Execution
from .geometry import DenseConv
from .kept import Kept
from .plain import Lowered
from .steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Self


class Layer(nn.Module, abc.ABC):
    """A stand-in for a dense layer: `transform` does its linear part, as `execution` says.

    A call is `run(prepare(positions), x)`: all that does not depend on the input, then the input.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> path, layer = next(us.stand_ins(us.substitute(model, us.plan(model, "low_rank", ratio=0.5))))
    >>> isinstance(layer, us.Layer), layer.transform.name, tuple(layer.weight.shape)
    (True, 'low_rank', (16, 16, 3, 3))
    """

    transform: Transform
    bias: Tensor | None
    area: int = 1  # taps of the patches that the transform meets
    has_rows: bool = False  # whether the vectors it meets lie in rows
    _execution: Execution = DEFAULT

    def __init__(self) -> None:
        super().__init__()
        self._kept = Kept()

    def train(self, mode: bool = True) -> Self:
        """As of any module; in training nothing is kept between calls."""
        if mode:  # many call `eval` before every prediction
            self._kept.drop()
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._kept.drop()
        moved: Self = super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return moved

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """All its transforms: one, or one for every group of a grouped convolution."""
        return (self.transform,)

    @property
    @abc.abstractmethod
    def weight(self) -> Tensor:
        """The dense weight, formed from the factors; gradients flow through it."""

    def matrix(self) -> Tensor:
        """The dense weight as a matrix out × in·taps, however the layer it stands for stores it."""
        return self.weight.flatten(1)

    @abc.abstractmethod
    def positions(self, x: Tensor) -> int:
        """How many vectors the transform meets in a call on `x`."""

    @abc.abstractmethod
    def run(self, state: State, x: Tensor) -> Tensor:
        """Apply a prepared transform and the bias to a batch."""

    @abc.abstractmethod
    def keeps_much(self, positions: int) -> bool:
        """Whether the backward pass of such a call would keep more than the input and the weights."""

    @abc.abstractmethod
    def merged(self) -> nn.Module:
        """A plain layer with the same outputs."""

    @property
    def execution(self) -> Execution:
        """How this layer runs; may be set, and is saved with the network."""
        return self._execution

    @execution.setter
    def execution(self, wanted: Execution) -> None:
        if not isinstance(wanted, Execution):
            raise TypeError(f"execution is {wanted!r}, not an Execution")
        wanted.check(self.transform)
        self._execution = wanted
        self._kept.drop()

    def prepare(self, positions: int) -> State:
        """What a call on so many vectors does before it looks at its input: in inference, once for all."""
        if self.training or torch.is_grad_enabled():
            order = self.execution.choose(self.transform, positions, self.area)
            return self.transform.prepare(order.name)
        order = self.order_in_inference(positions, kept=self._kept.may_keep(self))
        return self._kept.state(self, self.transform, order)

    def order_in_inference(self, positions: int, *, kept: bool = True) -> Order:
        """The order of a call in evaluation without gradients, where its state can be kept or not."""
        return self.execution.choose(
            self.transform, positions, self.area, inference=True, kept=kept, rows=self.has_rows
        )

    def steps(self, state: State, positions: int) -> Steps | None:  # noqa: ARG002
        """A prepared call on so many vectors as plain functions in turn, where it is that; they may be kept.

        What one of them gives is held by no other: a large image makes room for the one after the next.
        """
        return None

    def _all_steps(self, x: Tensor) -> Steps:
        """What a call on inputs like `x` does once it is prepared."""
        positions = self.positions(x)
        state = self.prepare(positions)
        return self.steps(state, positions) or (partial(self.run, state),)

    def _prepare_and_run(self, x: Tensor) -> Tensor:
        return self.run(self.prepare(self.positions(x)), x)

    def _call(self, x: Tensor) -> Tensor:
        """Both steps; in inference as they are kept."""
        if self.training or torch.is_grad_enabled():
            return self._call_in_training(x)
        steps = self._kept.steps(self, x, self._all_steps)
        if steps is None:
            return self._prepare_and_run(x)
        for step in steps:
            x = step(x)
        return x

    def _call_in_training(self, x: Tensor) -> Tensor:
        """Computed again in the backward pass if there will be one and the layer shall."""
        if self.training and torch.is_grad_enabled() and self._recomputes(x) and _may_recompute():
            out: Tensor = checkpoint(self._prepare_and_run, x, use_reentrant=False, preserve_rng_state=False)
            return out
        return self._prepare_and_run(x)

    def _recomputes(self, x: Tensor) -> bool:
        wanted = self.execution.recompute
        return self.keeps_much(self.positions(x)) if wanted is None else wanted

    def reset_parameters(self) -> None:
        """Set the bias to zero; the transform draws its own parameters."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def ideal_mult_adds(self, positions: int, pixels: int) -> int:  # noqa: ARG002
        """Mult-adds for so many output and input vectors, all that depends on no input done ahead."""
        transform = self.transform
        return positions * transform.ideal_mult_adds(
            transform.in_features, transform.out_features, transform.knob
        )

    def extra_repr(self) -> str:
        """Show how it runs where that is not the default."""
        return "" if self.execution == DEFAULT else f"execution={self.execution!r}"


def stand_ins(model: nn.Module) -> Iterator[tuple[str, Layer]]:
    """The understudy layers of a network by path; one that is part of another is not named by itself.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", params="5k"))
    >>> [path for path, _ in stand_ins(student)][:2]
    ['stage1.0.conv1', 'stage1.0.conv2']
    """
    parts: set[nn.Module] = set()
    for path, module in the_network(model, lazy=True).named_modules():
        if isinstance(module, Layer) and module not in parts:
            parts.update(module.modules())
            yield path, module


def recompute_nothing_(layers: Iterable[Layer]) -> None:
    """Let stand-ins keep all that their backward pass needs: more memory, and quicker."""
    for layer in layers:
        layer.execution = dataclasses.replace(layer.execution, recompute=False)


def is_student(model: nn.Module) -> bool:
    """Whether a network holds stand-ins, lowered ones among them."""
    return any(isinstance(module, Layer | Lowered) for module in model.modules())


def check_plain(model: nn.Module) -> None:
    """Raise a ValueError where a network holds stand-ins already."""
    if is_student(model):
        raise ValueError(f"{type(model).__name__} holds stand-ins already: us.merge gives plain layers first")


@torch.no_grad()
def fill_(dense: nn.Linear | DenseConv, weight: Tensor, bias: Tensor | None) -> None:
    """Give a plain layer its weight and bias, and the bias whether it is trained."""
    dense.weight.copy_(weight)
    if bias is not None and dense.bias is not None:
        dense.bias.copy_(bias)
        dense.bias.requires_grad_(bias.requires_grad)


def _may_recompute() -> bool:
    """Not in an exported graph, which has no backward pass, nor under torch.func, which forbids the hooks."""
    if torch.compiler.is_compiling():
        return not torch.compiler.is_exporting()
    allowed: bool = torch._C._autograd._saved_tensors_hooks_is_enabled()  # type: ignore[attr-defined]
    return allowed
