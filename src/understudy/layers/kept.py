"""What a layer keeps between calls in inference: all that follows from its parameters alone.

Formed weights and merged factors are the same in every call until a parameter changes. They are never saved,
copied or pickled, and what they were made from is looked at before every use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from understudy._util.capturing import is_captured
from understudy._util.packing import Packs
from understudy.transforms import Transform
from understudy.transforms.orders import FORMED, Order
from understudy.transforms.stages import Product, State

from .steps import Steps, Weighted

_SHAPES = 32  # of inputs, whose steps are kept at a time
_LOOKED_AT = 256  # bytes at either end of a tensor, at every call: looking at sixteen takes as long
_is_cast_anywhere = torch._C._is_any_autocast_enabled

_Window = ctypes.Array[ctypes.c_char]  # onto some bytes of a tensor's memory


def _windows(tensor: Tensor) -> list[_Window]:
    """Windows onto both ends of a tensor's memory, which must outlive them; none on other devices."""
    if not tensor.is_cpu or not tensor.numel():
        return []
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    size = tensor.itemsize * (1 + sum((count - 1) * step for count, step in steps))
    places = [0] if size <= _LOOKED_AT else [0, size - _LOOKED_AT]
    kind = ctypes.c_char * min(_LOOKED_AT, size)
    return [kind.from_address(tensor.data_ptr() + place) for place in places]


class _Record:
    """What was made from all that a layer held, as it was then, after so many steps of optimisers.

    Every call of a layer asks whether it still fits: the same objects must be held in the same places, lie
    where they lay, and each be what it was. Some values are looked at, too: writing through `.data`, as
    averages of weights are often kept, counts no version. A write that leaves those as they were is not seen.
    """

    def __init__(self, layer: nn.Module) -> None:
        self.own = layer._parameters
        self.places = [
            (place, len(place), [(place.get, name, held) for name, held in place.items()])
            for place in _places(layer)
        ]
        tensors = [held for *_, items in self.places for *_, held in items if isinstance(held, Tensor)]
        self.keeps = bool(tensors) and all(map(_is_ordinary, tensors)) and "_is_replica" not in vars(layer)
        # Its own bias is read by every call: nothing is made from it.
        read = [each for each in tensors if each is not self.own.get("bias")] if self.keeps else []
        self.memory = [tensor.detach() for tensor in read]  # held: none other comes to lie there
        self.addresses = [(each.data_ptr, each.data_ptr()) for each in tensors] if self.keeps else []
        self.versions = [(each, each._version) for each in read]
        self.windows = [(window, window.raw) for each in read for window in _windows(each)]
        self.device = tensors[0].device.type if tensors else ""
        self.optimised = _OPTIMISED[0]
        self.states: dict[tuple[str, torch.dtype | None], State] = {}
        self.steps: dict[torch.Size, Steps] = {}
        self.packs = Packs()

    def fits(self, layer: nn.Module) -> bool:
        """Whether it was made from what this layer holds, as it is now."""
        if self.optimised != _OPTIMISED[0] or self.own is not layer._parameters:
            return False
        for place, size, items in self.places:
            if len(place) != size:
                return False
            for get, name, held in items:
                if get(name) is not held:
                    return False
        for find, address in self.addresses:
            if find() != address:
                return False
        for tensor, version in self.versions:
            if tensor._version != version:
                return False
        for window, values in self.windows:  # noqa: SIM110
            if window.raw != values:
                return False
        return True


def _places(layer: nn.Module) -> list[dict[str, Any]]:
    """Where a layer and its parts hold parameters, of which there may come more, and buffers and parts."""
    return [
        place
        for module in layer.modules()
        for place in (module._parameters, module._buffers, module._modules)
        if place or place is module._parameters
    ]


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

    def steps(self, layer: nn.Module, x: Tensor, make: Callable[[Tensor], Steps]) -> Steps | None:
        """What a call on inputs like `x` does, function by function; None: nothing may be kept."""
        record = self._now(layer)
        if record is None or _is_cast_anywhere():
            return None
        try:
            return record.steps[x.shape]
        except KeyError:
            made = make(x)
            if len(record.steps) >= _SHAPES:
                return made
            packed = (step.packed(record.packs) if isinstance(step, Weighted) else step for step in made)
            return record.steps.setdefault(x.shape, tuple(packed))

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

    def steps(self, _layer: nn.Module, x: Tensor, make: Callable[[Tensor], Steps]) -> Steps | None:
        """What a call does, made aside."""
        with self._aside():
            return make(x)

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
