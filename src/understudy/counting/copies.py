"""A copy of a network that may be run to see what it does: nobody else hears of it."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterator
from typing import Any

from torch import nn

from understudy._util.meta import Convert, converted_tensors
from understudy._util.wrappers import held

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Whose hooks are part of a forward pass: old-style weight norm, features that are collected on the way.
_LIBRARIES = ("torch", "timm", "torchvision", "transformers")


def copy_to_run(model: nn.Module, own: Convert) -> nn.Module:
    """A deep copy in evaluation mode, with every tensor of its modules converted.

    A parallel or compiled wrapper only calls what it wraps, under the same paths. Hooks that neither the
    network itself nor a library put there watch the network of the caller, and are left out.
    """
    memo = converted_tensors(model, own)
    foreign = {id(hook): hook for hook in _foreign_hooks(model)}
    memo |= foreign  # not copied either: they may hold anything
    for wrapper in reversed([*model.modules()]):  # the innermost first
        name = held(wrapper)
        if name is not None:
            memo[id(wrapper)] = _Calling(name, copy.deepcopy(wrapper.get_submodule(name), memo))
    network: nn.Module = copy.deepcopy(model, memo)
    for module in network.modules():
        for hooks in _hooks_of(module):
            for key in [key for key, hook in hooks.items() if id(hook) in foreign]:
                del hooks[key]
    network.eval()
    _unfuse_(network)
    return network


def _unfuse_(network: nn.Module) -> None:
    """Keep PyTorch's attentions from their fused kernels, which read weights in ways that hide their cost.

    The modules of the copy are told, for the flag that exists holds for all threads of the process.
    """
    for module in network.modules():
        if isinstance(module, nn.MultiheadAttention):  # without dropout it trains as it evaluates
            module.training, module.dropout = True, 0.0
        elif isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False


class _Calling(nn.Module):
    """Calls the one module that it holds."""

    def __init__(self, name: str, module: nn.Module) -> None:
        super().__init__()
        self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        (module,) = self.children()
        return module(*args, **kwargs)


def _hooks_of(module: nn.Module) -> list[dict[int, Any]]:
    return [vars(module)[name] for name in _HOOKS]


def _foreign_hooks(model: nn.Module) -> Iterator[Any]:
    """The hooks that are methods of nothing in the network and come from no library of networks."""
    own = {id(value) for module in model.modules() for value in (module, *vars(module).values())}
    for module in model.modules():
        for hooks in _hooks_of(module):
            for hook in hooks.values():
                origin = hook
                while isinstance(origin, functools.partial):
                    origin = origin.func
                owner = origin.__self__ if inspect.ismethod(origin) else origin
                home = owner.__module__ if inspect.isroutine(owner) else type(owner).__module__
                if id(owner) not in own and (home or "").partition(".")[0] not in _LIBRARIES:
                    yield hook
