"""How a network may be run to be counted: without weights, on fake tensors, or for real."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from understudy._util.meta import Convert, fake_tensors, weightless


@dataclasses.dataclass(frozen=True)
class Way:
    """What the tensors of a network and of its example become, and the mode in which it then runs."""

    own: Convert
    given: Convert
    mode: AbstractContextManager[Any]


def ways_to_run(model: nn.Module) -> Iterator[Way]:
    """From the one that needs no memory to the one that any network can take; a fresh mode for each."""
    yield Way(weightless, weightless, contextlib.nullcontext())
    if any(parameter.is_meta for parameter in model.parameters()):
        return  # there is nothing real to run
    mode, fake = fake_tensors()
    yield Way(fake, lambda tensor: fake(_filled(tensor)), mode)
    yield Way(_on_cpu, lambda tensor: _on_cpu(_filled(tensor)), _same_random_state())


def as_it_is() -> Way:
    """For real, where the model and its example are."""
    return Way(_cloned, lambda tensor: _cloned(_filled(tensor)), _same_random_state())


def _same_random_state() -> AbstractContextManager[Any]:
    """What a network draws does not change what its user draws next."""
    return torch.random.fork_rng(devices=[])


def _cloned(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _filled(tensor: Tensor) -> Tensor:
    """An example that has only a shape, as zeros."""
    return torch.zeros_like(tensor, device="cpu") if tensor.is_meta else tensor
