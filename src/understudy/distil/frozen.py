"""A teacher that answers and stays as it is: in evaluation mode, without gradients, its modes restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

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
    """The model on a copy of a batch: a mapping by names, a tuple or list in order, else as it is.

    A model may write to its inputs, which others are still to see.
    """
    copied = tree_map_only(Tensor, torch.clone, dict(batch) if isinstance(batch, Mapping) else batch)
    if isinstance(copied, dict):
        return model(**copied)
    return model(*copied) if isinstance(copied, tuple | list) else model(copied)
