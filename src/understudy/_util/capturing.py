"""Whether a call is a real one."""

from __future__ import annotations

import torch


def is_captured() -> bool:
    """Whether tensors are not what they seem: in graphs that are captured, traced or transformed."""
    return bool(
        torch.compiler.is_compiling()  # first: a compiler need not look at what follows
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack()
        or torch._C._functorch.peek_interpreter_stack() is not None
    )
