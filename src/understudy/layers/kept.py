"""What a layer keeps between calls in inference: all that follows from its parameters alone.

Formed weights and merged factors are the same in every call until a parameter changes. They are never saved,
copied or pickled, and what they were made from is looked at before every use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from understudy.transforms import Transform
from understudy.transforms.orders import FORMED, Order
from understudy.transforms.stages import Product, State

Steps = tuple[Callable[[Tensor], Tensor], ...]
_SHAPES = 32  # of inputs, whose steps are kept at a time


class _Mark(NamedTuple):
    """What a tensor was when something was made from it.

    Its first values are looked at too: writing through `.data`, as averages of weights are often kept, counts
    no version.
    """

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
            window = (ctypes.c_char * min(16, tensor.nbytes)).from_address(address)
        first = b"" if window is None else window.raw
        return cls(address, tensor._version, tensor.dtype, tensor.shape, window, first)

    def fits(self, tensor: Tensor) -> bool:
        """Whether nothing about the tensor changed."""
        return (
            tensor.data_ptr() == self.address
            and tensor._version == self.version
            and (self.window is None or self.window.raw == self.first)
            and tensor.shape == self.shape
            and tensor.dtype == self.dtype
        )


class _Record:
    """What was made from tensors that had these marks, after so many steps of optimisers."""

    def __init__(self, sources: list[Tensor]) -> None:
        self.memory = [tensor.detach() for tensor in sources]  # held: no other tensor comes to lie there
        self.marks = [_Mark.of(tensor) for tensor in sources]
        self.optimised = _OPTIMISED[0]
        self.states: dict[tuple[str, torch.dtype | None], State] = {}
        self.steps: dict[torch.Size, Steps] = {}

    def fits(self, sources: list[Tensor]) -> bool:
        """Whether it was made from these tensors as they are now."""
        if self.optimised != _OPTIMISED[0] or len(sources) != len(self.marks):
            return False
        for mark, tensor in zip(self.marks, sources, strict=True):  # noqa: SIM110  (a generator takes longer)
            if not mark.fits(tensor):
                return False
        return True


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

    def state(self, sources: list[Tensor], transform: Transform, order: Order) -> State:
        """The prepared state of an order: the kept one, as long as nothing it follows from changed."""
        if order.per_call == 0 and order.name != FORMED:  # its stages are the parameters themselves
            return transform.prepare(order.name)
        if not may_keep(sources):
            return transform.prepare(order.name)
        record = self._now(sources)
        device = sources[0].device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        found = record.states.get((order.name, dtype))
        if found is None:
            found = record.states[order.name, dtype] = _in_order(transform.prepare(order.name))
        return found

    def steps(self, sources: list[Tensor], shape: torch.Size, make: Callable[[], Steps]) -> Steps | None:
        """What a call on an input of this shape does, function by function; None: nothing may be kept."""
        if not may_keep(sources) or torch.is_autocast_enabled(sources[0].device.type):
            return None
        record = self._now(sources)
        try:
            return record.steps[shape]
        except KeyError:
            made = make()
            if len(record.steps) < _SHAPES:
                record.steps[shape] = made
            return made

    def _now(self, sources: list[Tensor]) -> _Record:
        """The record, a new one if any of what it was made from is another tensor, or another value."""
        record = self._record
        if record is None or not record.fits(sources):
            record = self._record = _Record(sources)
        return record


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


def may_keep(sources: list[Tensor]) -> bool:
    """Not where tensors are not what they seem: in graphs that are captured, traced or transformed."""
    if torch.compiler.is_compiling():  # first: a compiler need not look at what follows
        return False
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return False
    if not sources:
        return False
    for tensor in sources:
        if type(tensor) not in (nn.Parameter, Tensor) or tensor.is_meta or tensor.is_inference():
            return False
    return torch._C._functorch.peek_interpreter_stack() is None


def held_by(transform: Transform) -> list[Tensor]:
    """Its parameters and buffers; looked up plainly, since every call of a layer asks."""
    modules = transform.modules() if transform._modules else (transform,)
    return [
        tensor
        for module in modules
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None
    ]
