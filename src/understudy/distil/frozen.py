"""A teacher that answers and stays as it is: in evaluation mode, without gradients, its modes restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from understudy.counting.trace import Example


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """A block in which the model is in evaluation mode and nothing records gradients."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def call(model: nn.Module, batch: Example) -> Any:
    """The model on a batch: a mapping by names, a tuple or list in order, anything else as it is."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def first_tensor(output: Any, what: str) -> Tensor:
    """The output, or the first tensor of a tuple, a list or a mapping, such as what transformers give."""
    if isinstance(output, Tensor):
        return output
    parts: Any = ()
    if isinstance(output, Mapping):
        parts = output.values()
    elif isinstance(output, tuple | list):
        parts = output
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise ValueError(f"{what} gave a {type(output).__name__} without a tensor at its first level")
