"""Students of models that save themselves: their own format has no place for stand-ins, so it refuses."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from torch import nn

from understudy.layers.layer import is_student

_METHOD = "save_pretrained"


def guard_(model: nn.Module) -> nn.Module:
    """Have every module that would save stand-ins by itself refuse, and every other one save as ever.

    A file that `save_pretrained` writes of a student loads without an error, and with the replaced layers
    drawn afresh: transformers knows the architecture only by its configuration.
    """
    for module in model.modules():
        if not callable(getattr(type(module), _METHOD, None)):
            continue
        if is_student(module):
            vars(module)[_METHOD] = functools.partial(_refuse, type(module).__name__)
        elif _is_ours(vars(module).get(_METHOD)):
            del vars(module)[_METHOD]
    return model


def _is_ours(method: object) -> bool:
    return isinstance(method, functools.partial) and method.func is _refuse


def _refuse(model: str, *_arguments: Any, **_options: Any) -> NoReturn:
    raise RuntimeError(
        f"a file that save_pretrained writes of {model} would load with its replaced layers drawn afresh; "
        "use understudy.save(model, path) beside model.config.save_pretrained(folder), and later "
        f"understudy.load(path, {model}(config)); understudy.merge(model) gives a plain model, which saves "
        "as ever"
    )
