"""One module in the place of another, its mode and its hooks; and what a hook sees."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)


def first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a module is called with first, by its place or by its name; None where there is nothing."""
    return next(iter((*args, *kwargs.values())), None)


def adopt(old: nn.Module, new: nn.Module) -> nn.Module:
    """Hand the mode and the hooks of a module over to the one that takes its place."""
    new.train(old.training)
    for name in _HOOKS:
        setattr(new, name, copy.copy(getattr(old, name)))
    return new


def copied(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """A deep copy with what `memo` gives in the place of some modules, whose hooks are of the copy too."""
    given = [new for new in memo.values() if isinstance(new, nn.Module)]
    network: nn.Module = copy.deepcopy(model, memo)
    for new in given:
        for name in _HOOKS:
            setattr(new, name, copy.deepcopy(getattr(new, name), memo))
    return network


def become_(old: nn.Module, new: nn.Module) -> None:
    """Turn one module into another where it stands: whoever holds it holds the new one, plain lists too."""
    old.__class__ = new.__class__
    old.__dict__ = new.__dict__


def take_modes_(network: nn.Module, like: nn.Module) -> nn.Module:
    """Every part in training or in evaluation as the one of its path in `like`, else as all of `like`."""
    modes = {path: part.training for path, part in like.named_modules()}
    network.train(like.training)
    for path, part in network.named_modules():
        mode = modes.get(path)
        if mode is not None and part.training != mode:
            part.train(mode)
    return network
