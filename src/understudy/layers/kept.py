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

from understudy.transforms import Transform
from understudy.transforms.orders import FORMED, Order
from understudy.transforms.stages import State

# Where a parameter lies, how often it was written to, and its first values: writing through `.data`, as
# averages of weights are often kept, counts no version.
Mark = tuple[object, ...]
Steps = tuple[Callable[[Tensor], Tensor], ...]
_SHAPES = 32  # of inputs, whose steps are kept at a time


class Kept:
    """Prepared states by order, what calls do by the shape of their input, and what both follow from."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, torch.dtype | None], State] = {}
        self._steps: dict[torch.Size, Steps | None] = {}
        self._marks: list[Mark] = []
        self._memory: list[Tensor] = []  # held, so that no other tensor comes to lie where a parameter lay

    def __deepcopy__(self, memo: dict[int, Any]) -> Kept:
        return Kept()

    def __reduce__(self) -> tuple[type[Kept], tuple[()]]:
        return Kept, ()

    def __len__(self) -> int:
        return len(self._states)

    def drop(self) -> None:
        """Forget everything."""
        self._states.clear()
        self._steps.clear()
        self._marks.clear()
        self._memory.clear()

    def state(self, sources: list[Tensor], transform: Transform, order: Order) -> State:
        """The prepared state of an order: the kept one, as long as nothing it follows from changed."""
        if order.per_call == 0 and order.name != FORMED:  # its stages are the parameters themselves
            return transform.prepare(order.name)
        if not _may_keep(sources):
            return transform.prepare(order.name)
        self._look_at(sources)
        device = sources[0].device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        found = self._states.get((order.name, dtype))
        if found is None:
            found = self._states[order.name, dtype] = transform.prepare(order.name)
        return found

    def steps(
        self, sources: list[Tensor], shape: torch.Size, make: Callable[[], Steps | None]
    ) -> Steps | None:
        """What a call on an input of this shape does, function by function; None: nothing so plain."""
        if not _may_keep(sources) or torch.is_autocast_enabled(sources[0].device.type):
            return None
        self._look_at(sources)
        if shape not in self._steps:
            made = make()  # may drop what is older
            if len(self._steps) >= _SHAPES:
                self._steps.clear()
            self._steps[shape] = made
        return self._steps[shape]

    def _look_at(self, sources: list[Tensor]) -> None:
        """Drop everything if any of what it was made from is another tensor, or another value."""
        marks = [_mark(tensor) for tensor in sources]
        if marks != self._marks:
            self.drop()
            self._marks, self._memory = marks, [tensor.detach() for tensor in sources]


def _may_keep(sources: list[Tensor]) -> bool:
    """Not where tensors are not what they seem: in graphs that are captured, traced or transformed."""
    if torch.compiler.is_compiling():  # first: a compiler need not look at what follows
        return False
    if torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
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
