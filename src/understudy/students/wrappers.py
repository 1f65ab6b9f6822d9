"""Networks inside torch.compile and parallel wrappers: the network itself, and its own names."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def _held(module: nn.Module) -> str | None:
    """The name under which a wrapper holds the module that it wraps; None for a module of any other type."""
    if isinstance(module, nn.DataParallel | DistributedDataParallel):
        return "module"
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # nothing is compiled before it is imported
    if compiler is not None and isinstance(module, compiler.OptimizedModule):
        return "_orig_mod"
    return None


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside any wrappers around the whole of it."""
    while (held := _held(model)) is not None:
        model = model.get_submodule(held)
    return model


class OwnNames:
    """Path or key in a network with wrapped parts → the same in the network without the wrappers."""

    def __init__(self, model: nn.Module) -> None:
        self._held = dict(_wrapped_parts(model))

    def __call__(self, name: str) -> str:
        """`blocks.0._orig_mod.weight` → `blocks.0.weight`, where `blocks.0` is compiled."""
        path, kept = "", []
        for part in name.split("."):
            if self._held.get(path) != part:
                kept.append(part)
            path = f"{path}.{part}".lstrip(".")
        return ".".join(kept)


def _wrapped_parts(model: nn.Module) -> Iterator[tuple[str, str]]:
    for path, module in model.named_modules(remove_duplicate=False):
        held = _held(module)
        if held is not None:
            yield path, held
