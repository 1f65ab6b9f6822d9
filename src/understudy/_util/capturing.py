"""Whether a call is a real one."""

from __future__ import annotations

import torch

# By names of this module, since every call of a layer asks.
_is_compiling = torch.compiler.is_compiling
_tracing_state = torch._C._get_tracing_state
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_forward_mode = torch.autograd.forward_ad


def is_captured() -> bool:
    """Whether tensors are not what they seem: captured, traced, transformed, or with tangents."""
    return bool(
        _is_compiling()  # first: a compiler need not look at what follows
        or _tracing_state() is not None
        or _dispatch_modes()
        or _transforms() is not None
        or _forward_mode._current_level >= 0
    )
