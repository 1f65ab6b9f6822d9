"""Run a network on a batch, and look at its layers as they run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from understudy._util.modules import first_input
from understudy.layers.dense import DenseMap

from .inputs import Batch, DataError, OutputOf

Watch = Callable[[str, int, int], None]  # what is done, steps so far, steps in all
Look = Callable[[str, DenseMap, Tensor, Tensor], Tensor | None]  # path, layer, its input and output


def run(model: nn.Module, batch: Batch, output_of: OutputOf | None = None) -> Tensor:
    """Run the model on a batch, on its own device; a DataError says why it cannot."""
    taken: Tensor = _within(model, batch, lambda moved: moved.call(model, output_of))
    return taken


def pass_through(model: nn.Module, batch: Batch) -> None:
    """The same for hooks alone: what the model returns may be anything."""
    _within(model, batch, lambda moved: moved.forward(model))


def _within(model: nn.Module, batch: Batch, call: Callable[[Batch], Any]) -> Any:
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    try:
        return call(batch.to(device))
    except DataError:
        raise
    except Exception as error:
        shapes = [tuple(leaf.shape) for leaf in tree_leaves(batch.inputs) if isinstance(leaf, Tensor)]
        raise DataError(f"{type(model).__name__} cannot run on a batch of shape {shapes}: {error}") from error


@contextlib.contextmanager
def watching(layers: Mapping[str, DenseMap], look: Look) -> Iterator[None]:
    """Call `look(path, layer, input, output)` at every call of every layer; what it returns is passed on."""

    def hook(path: str, layer: DenseMap) -> Callable[..., Tensor | None]:
        return lambda _, args, kwargs, output: look(path, layer, first_input(args, kwargs), output)

    handles = [
        layer.module.register_forward_hook(hook(path, layer), with_kwargs=True)
        for path, layer in layers.items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
