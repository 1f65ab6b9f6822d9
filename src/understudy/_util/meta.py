"""Networks without weights: the structure, shapes and sharing, on the meta device or as fake tensors."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

Convert = Callable[[Tensor], Tensor]


def meta_copy(model: nn.Module) -> nn.Module:
    """A deep copy whose tensors are all on the meta device: the structure and the sharing, no memory."""
    return copy.deepcopy(model, converted_tensors(model, weightless))


def weightless(tensor: Tensor) -> Tensor:
    """The same on the meta device."""
    return tensor.detach().to("meta")


def converted_tensors(model: nn.Module, convert: Convert) -> dict[int, Any]:
    """What a deep copy takes for each tensor of the network's modules, by identity."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in memo:
                memo[id(parameter)] = nn.Parameter(convert(parameter), parameter.requires_grad)
        plain = [value for value in vars(module).values() if isinstance(value, Tensor)]
        for tensor in (*module._buffers.values(), *plain):
            if tensor is not None and id(tensor) not in memo:
                memo[id(tensor)] = convert(tensor)
    return memo


def fake_tensors() -> tuple[AbstractContextManager[Any], Convert]:
    """A mode in which tensors have a shape and a device, and no values; and tensors as such ones.

    What a network makes in its forward pass is then on the device of its weights, which the meta device
    cannot offer, and small constants keep their values.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # takes long to import

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    return _quiet(mode), lambda tensor: mode.from_tensor(tensor.detach())


@contextlib.contextmanager
def _quiet(mode: AbstractContextManager[Any]) -> Iterator[None]:
    """The mode, without what it logs in this thread of operations that need values: another way follows."""
    logger, thread = logging.getLogger("torch._subclasses.fake_tensor"), threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_of_others)
    try:
        with mode:
            yield
    finally:
        logger.removeFilter(is_of_others)
