"""What every public function asks of a network and of an amount, said in one sentence each."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy


def the_network(
    model: Any,
    name: str = "model",
    *,
    lazy: bool = False,
    copied: bool = False,
    weights: bool = False,
    run: bool = False,
) -> nn.Module:
    """The network itself, if it is one that can be worked with; else a TypeError or ValueError says why not.

    With `lazy` it may have layers whose shape is not known yet. It must be fit to be `copied`, to have its
    `weights` looked at, or to be `run`, where that is to be done.
    """
    if inspect.isclass(model) and issubclass(model, nn.Module):
        raise TypeError(f"{name} is the class {model.__name__}: make a network of it, {model.__name__}(…)")
    if not isinstance(model, nn.Module):
        by_name = ": create_model() makes one by name" if isinstance(model, str) else ""
        raise TypeError(f"{name} is a {type(model).__name__}, not a torch.nn.Module{by_name}")
    kind = type(model).__name__
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            what = f"{name} holds {path!r}," if path else f"{name} is"
            raise TypeError(f"{what} a ScriptModule, whose layers are compiled: give what it was made of")
        held = [*module._modules, *module._parameters, *module._buffers]
        dotted = next((own for own in held if "." in own), None)
        if dotted is not None:
            raise ValueError(f"{kind} has a part named {dotted!r}: a dot stands between names, not in one")
        if copied:
            computed = next((own for own, value in vars(module).items() if _is_computed(value)), None)
            if computed is not None:
                raise ValueError(
                    f"{f'{path}.{computed}'.lstrip('.')!r} of {kind} is computed and kept as a plain tensor, "
                    "which cannot be copied, as by the old weight_norm: torch.nn.utils.parametrizations has "
                    "one that can, and remove_weight_norm undoes it"
                )
    for key, parameter in model.named_parameters():
        has_shape = not is_lazy(parameter)
        if not has_shape and not lazy:
            raise ValueError(f"the shape of {key!r} of {kind} is unknown before its first call: run it once")
        if not has_shape:
            continue
        if (weights or run) and parameter.is_meta:
            raise ValueError(f"{key!r} of {kind} is on the meta device, without the values that are needed")
        if run and parameter.is_floating_point() and parameter.element_size() < 2:
            raise ValueError(f"{key!r} of {kind} is {parameter.dtype}, with which torch does not compute")
    return model


def _is_computed(value: object) -> bool:
    return isinstance(value, Tensor) and not value.is_leaf


def the_amount(name: str, value: Any, *, above: bool = False) -> float:
    """A finite number of at least 0, or `above` it; else a ValueError with its name."""
    legal = "above 0" if above else "of at least 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {value!r}, not a number {legal}")
    if not math.isfinite(value) or value < 0 or (above and value == 0):
        raise ValueError(f"{name} is {value!r}, not a finite number {legal}")
    return value
