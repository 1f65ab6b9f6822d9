"""A run that went wrong: stopped at once, with the place where it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from understudy.counting.trace import Example
from understudy.distil.frozen import call
from understudy.students.versions import tensors_of


class DivergedError(RuntimeError):
    """The loss or a weight became NaN or infinite.

    >>> import torch
    >>> from understudy.train import Job, fit
    >>> batches = [(torch.full((8, 4), float("nan")), torch.randint(2, (8,)))]
    >>> fit(Job(torch.nn.Sequential(torch.nn.Linear(4, 2)), batches))
    Traceback (most recent call last):
    ...
    understudy.train.divergence.DivergedError: the loss is nan at step 0; the first output that...
    """


def check_finite(network: nn.Module, step: int) -> None:
    """Raise a DivergedError if the last update spoilt a weight: it must reach no checkpoint and no result."""
    for key, tensor in tensors_of(network).items():
        if not bool(tensor.isfinite().all()):
            raise DivergedError(f"{key!r} is not finite after step {step}")


@torch.no_grad()
def first_not_finite(network: nn.Module, x: Example) -> str:
    """Which layer's output is not finite first, found by running the batch once more, in words."""
    found: list[str] = []

    def watch(path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not found and not bool(output.isfinite().all()):
                found.append(path)

        return hook

    handles = [module.register_forward_hook(watch(path)) for path, module in network.named_modules() if path]
    try:
        call(network, x)
    finally:
        for handle in handles:
            handle.remove()
    return (
        f"the first output that is not finite is that of {found[0]!r}" if found else "all outputs are finite"
    )
