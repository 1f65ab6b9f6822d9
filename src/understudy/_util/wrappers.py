"""Networks inside torch.compile and parallel wrappers: the network itself."""

from __future__ import annotations

import sys

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def held(module: nn.Module) -> str | None:
    """The name under which a wrapper holds the module that it wraps; None for a module of any other type."""
    if isinstance(module, nn.DataParallel | DistributedDataParallel):
        return "module"
    compiler = sys.modules.get("torch._dynamo.eval_frame")  # nothing is compiled before it is imported
    if compiler is not None and isinstance(module, compiler.OptimizedModule):
        return "_orig_mod"
    return None


def unwrapped(model: nn.Module) -> nn.Module:
    """The network inside any wrappers around the whole of it."""
    while (name := held(model)) is not None:
        model = model.get_submodule(name)
    return model
