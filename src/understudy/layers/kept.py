"""What a layer keeps between calls in inference: all that follows from its parameters alone.

Formed weights and merged factors are the same in every call until a parameter changes. They are never saved,
copied or pickled, and what they were made from is looked at before every use.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from understudy._util.capturing import is_captured
from understudy.transforms import Transform
from understudy.transforms.orders import FORMED, Order
from understudy.transforms.stages import Product, State

Steps = tuple[Callable[[Tensor], Tensor], ...]
_SHAPES = 32  # of inputs, whose steps are kept at a time
_LOOKED_AT = 256  # bytes of a tensor, at every call: looking at sixteen takes as long


class _Mark(NamedTuple):
    """What a tensor was when something was made from it.

    Its first values are looked at too: writing through `.data`, as averages of weights are often kept, counts
    no version. A write that leaves them as they were is not seen.
    """

    tensor: Tensor
    address: int
    version: int
    dtype: torch.dtype
    shape: torch.Size
    window: ctypes.Array[ctypes.c_char] | None  # onto the first bytes of its memory
    first: bytes

    @classmethod
    def of(cls, tensor: Tensor) -> _Mark:
        """A tensor as it is now; its memory must outlive the mark."""
        address, window = tensor.data_ptr(), None
        if tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.nbytes:
            window = (ctypes.c_char * min(_LOOKED_AT, tensor.nbytes)).from_address(address)
        first = b"" if window is None else window.raw
        return cls(tensor, address, tensor._version, tensor.dtype, tensor.shape, window, first)


class _Record:
    """What was made from all that a layer held, as it was then, after so many steps of optimisers.

    Every call of a layer asks whether it still fits: the same objects must be held in the same places, which
    is quickly told, and each be what it was.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.places = _places(layer)
        self.held = _held_in(self.places)
        tensors = [held for held in self.held if isinstance(held, Tensor)]
        self.keeps = bool(tensors) and all(map(_is_ordinary, tensors)) and "_is_replica" not in vars(layer)
        self.marks = [_Mark.of(tensor) for tensor in tensors] if self.keeps else []
        self.memory = [mark.tensor.detach() for mark in self.marks]  # held: none other comes to lie there
        self.device = tensors[0].device.type if tensors else ""
        self.optimised = _OPTIMISED[0]
        self.states: dict[tuple[str, torch.dtype | None], State] = {}
        self.steps: dict[torch.Size, Steps] = {}

    def fits(self, layer: nn.Module) -> bool:
        """Whether it was made from what this layer holds, as it is now."""
        if self.optimised != _OPTIMISED[0] or self.places[0] is not layer._parameters:
            return False
        held = _held_in(self.places)
        if len(held) != len(self.held) or not all(map(operator.is_, held, self.held)):
            return False
        for tensor, address, version, dtype, shape, window, first in self.marks:
            if (
                tensor.data_ptr() != address
                or tensor._version != version
                or (window is not None and window.raw != first)
                or tensor.shape != shape
                or tensor.dtype != dtype
            ):
                return False
        return True


def _places(layer: nn.Module) -> list[dict[str, Any]]:
    """Where a layer and its parts hold parameters, buffers and parts; its own parameters come first."""
    return [
        place
        for module in layer.modules()
        for place in (module._parameters, module._buffers, module._modules)
    ]


def _held_in(places: list[dict[str, Any]]) -> list[Any]:
    return [held for place in places for held in place.values()]


def _is_ordinary(tensor: Tensor) -> bool:
    """Whether it counts its versions and holds its values itself."""
    return type(tensor) in (nn.Parameter, Tensor) and not tensor.is_meta and not tensor.is_inference()


class Kept:
    """Prepared states by order, and what calls do by the shape of their input.

    Threads may call one layer at a time: what is kept is one record, which is replaced and never emptied.
    """

    def __init__(self) -> None:
        self._record: _Record | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()

    def __len__(self) -> int:
        return 0 if self._record is None else len(self._record.states)

    def drop(self) -> None:
        """Forget everything."""
        self._record = None

    def state(self, layer: nn.Module, transform: Transform, order: Order) -> State:
        """The prepared state of an order: the kept one, as long as nothing it follows from changed."""
        if order.per_call == 0 and order.name != FORMED:  # its stages are the parameters themselves
            return transform.prepare(order.name)
        return self.made(layer, order.name, lambda: transform.prepare(order.name))

    def made(self, layer: nn.Module, name: str, make: Callable[[], State]) -> State:
        """What `make` makes, by a name: the kept one, as long as nothing it follows from changed."""
        record = self._now(layer)
        if record is None:
            return make()
        autocast = torch.is_autocast_enabled(record.device)
        dtype = torch.get_autocast_dtype(record.device) if autocast else None
        found = record.states.get((name, dtype))
        if found is None:
            found = record.states[name, dtype] = _in_order(make())
        return found

    def steps(self, layer: nn.Module, shape: torch.Size, make: Callable[[], Steps]) -> Steps | None:
        """What a call on an input of this shape does, function by function; None: nothing may be kept."""
        record = self._now(layer)
        if record is None or torch.is_autocast_enabled(record.device):
            return None
        try:
            return record.steps[shape]
        except KeyError:
            made = make()
            if len(record.steps) < _SHAPES:
                record.steps[shape] = made
            return made

    def may_keep(self, layer: nn.Module) -> bool:
        """Whether anything of this layer is kept in a call now."""
        return self._now(layer) is not None

    def _now(self, layer: nn.Module) -> _Record | None:
        """The record, a new one if anything it was made from is another tensor, or another value."""
        if is_captured():
            return None
        record = self._record
        if record is None or not record.fits(layer):
            record = _Record(layer)
            if not record.keeps:
                return None
            self._record = record
        return record


class Ahead(Kept):
    """As if all was kept already, for a call that is only looked at: what makes it runs `aside`."""

    def __init__(self, aside: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._aside = aside

    def made(self, _layer: nn.Module, _name: str, make: Callable[[], State]) -> State:
        """What `make` makes, aside."""
        with self._aside():
            return _in_order(make())

    def steps(self, _layer: nn.Module, _shape: torch.Size, make: Callable[[], Steps]) -> Steps | None:
        """What a call does, made aside."""
        with self._aside():
            return make()

    def may_keep(self, _layer: nn.Module) -> bool:
        """Always."""
        return True


def _in_order(state: State) -> State:
    """Matrices row by row in memory: a product that reads one otherwise copies it, at every call."""
    return tuple(
        stage._replace(weight=stage.weight.contiguous()) if isinstance(stage, Product) else stage
        for stage in state
    )


# Steps of any optimiser: a fused one writes to parameters and counts no version of theirs.
_OPTIMISED = [0]


def _count(*_: object) -> None:
    _OPTIMISED[0] += 1


register_optimizer_step_post_hook(_count)
