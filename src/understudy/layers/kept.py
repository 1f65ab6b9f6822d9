"""What a layer keeps between calls in inference: all that follows from its parameters alone.

Formed weights and merged factors are the same in every call until a parameter changes. They are never saved,
copied or pickled, and what they were made from is looked at before every use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from understudy.transforms import Transform
from understudy.transforms.orders import FORMED, Order
from understudy.transforms.stages import State

# Where a parameter lies, how often it was written to, and its first values: writing through `.data`, as
# averages of weights are often kept, counts no version.
Mark = tuple[object, ...]
Steps = tuple[Callable[[Tensor], Tensor], ...]
_SHAPES = 32  # of inputs, whose steps are kept at a time


class _Record:
    """What was made from parameters that had these marks."""

    def __init__(self, marks: list[Mark], sources: list[Tensor]) -> None:
        self.marks = marks
        self.memory = [tensor.detach() for tensor in sources]  # held: no other tensor comes to lie there
        self.states: dict[tuple[str, torch.dtype | None], State] = {}
        self.steps: dict[torch.Size, Steps | None] = {}


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
        if not _may_keep(sources):
            return transform.prepare(order.name)
        record = self._now(sources)
        device = sources[0].device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        found = record.states.get((order.name, dtype))
        if found is None:
            found = record.states[order.name, dtype] = transform.prepare(order.name)
        return found

    def steps(
        self, sources: list[Tensor], shape: torch.Size, make: Callable[[], Steps | None]
    ) -> Steps | None:
        """What a call on an input of this shape does, function by function; None: nothing so plain."""
        if not _may_keep(sources) or torch.is_autocast_enabled(sources[0].device.type):
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
        marks: list[Mark] = [(_OPTIMISED[0],), *(_mark(tensor) for tensor in sources)]
        record = self._record
        if record is None or record.marks != marks:
            record = self._record = _Record(marks, sources)
        return record


# Steps of any optimiser: a fused one writes to parameters and counts no version of theirs.
_OPTIMISED = [0]


def _count(*_: object) -> None:
    _OPTIMISED[0] += 1


register_optimizer_step_post_hook(_count)


def _may_keep(sources: list[Tensor]) -> bool:
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


def _mark(tensor: Tensor) -> Mark:
    address = tensor.data_ptr()
    first = b""
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        first = ctypes.string_at(address, min(16, tensor.nbytes))  # a tenth of what indexing takes
    return address, tensor._version, tensor.dtype, tensor.shape, first
