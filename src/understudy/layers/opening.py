"""Networks with their closed layers open: copies in which every map is a layer; and closed again.

Closed are attentions, whose projections are packed into one matrix, transposed convolutions, and layers whose
weight is normed anew at every call.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from understudy._util.modules import become_, copied

from .attention import Attention
from .layer import Layer, stand_ins
from .normed import bared, is_weight_normed, norm_of, normed_again
from .spread import TAPS, TRANSPOSED, Spread, Transposed

_METHODS = ("forward", "_output_padding")


def why_closed(module: nn.Module) -> str | None:
    """Why an attention or a transposed convolution cannot be opened, by itself; None where it can."""
    if isinstance(module, nn.MultiheadAttention):
        return None if isinstance(module, Attention) else _why_packed(module)
    return _why_transposed(module) if isinstance(module, Transposed) else None


def _why_packed(module: nn.MultiheadAttention) -> str | None:
    if type(module).forward is not nn.MultiheadAttention.forward or "forward" in vars(module):
        return f"{type(module).__name__} computes in its own way"
    own = {name for name, _ in module.named_parameters(recurse=False)}
    packed = (
        {"in_proj_weight"}
        if module._qkv_same_embed_dim
        else {"q_proj_weight", "k_proj_weight", "v_proj_weight"}
    )
    if not packed <= own <= packed | {"in_proj_bias", "bias_k", "bias_v"}:
        return f"its weight is computed from {', '.join(sorted(own)) or 'elsewhere'}"
    if not all(parameter.is_floating_point() for parameter in module.parameters(recurse=False)):
        return "its weight is not floating point"
    return None


def _why_transposed(module: Transposed) -> str | None:
    if any(is_lazy(parameter) for parameter in module.parameters(recurse=False)):
        return "its shape is not known before its first call"
    parent = next(kind for kind in TRANSPOSED if isinstance(module, kind))
    is_own = any(getattr(type(module), name) is not getattr(parent, name) for name in _METHODS)
    if is_own or any(name in vars(module) for name in _METHODS):
        return f"{type(module).__name__} computes in its own way"
    return why_computed(module)


def why_computed(module: nn.Module) -> str | None:
    """From what a layer's weight is computed, in words; None where it is simply a parameter of the layer."""
    names = {name for name, _ in module.named_parameters()}
    if names <= {"weight", "bias"} and "weight" in names:
        return None
    return f"its weight is computed from {', '.join(sorted(names - {'bias'})) or 'elsewhere'}"


def _can_open(module: nn.Module) -> bool:
    """Whether a module is a closed layer that can be opened, by itself."""
    if is_weight_normed(module):
        return True
    is_closed = isinstance(module, nn.MultiheadAttention | Transposed) and not isinstance(module, Attention)
    return is_closed and why_closed(module) is None


def _opened(module: nn.Module, memo: dict[int, Any] | None = None) -> nn.Module:
    """A closed layer as it is when open, with what `memo` says for its parts."""
    if is_weight_normed(module):
        plain = bared(module)
        return _opened(plain) if _can_open(plain) else plain
    if isinstance(module, nn.MultiheadAttention):
        return Attention(module, module.out_proj if memo is None else copy.deepcopy(module.out_proj, memo))
    assert isinstance(module, Transposed)
    return Spread(module)


def _closed(model: nn.Module, paths: Iterable[str] | None = None) -> dict[str, nn.Module]:
    """The layers to open, by path, what is part of another first: those that share nothing with others.

    With `paths`, those only that are or hold a layer at one of them.
    """
    holders: collections.Counter[int] = collections.Counter()
    for module in model.modules():
        holders.update(id(parameter) for parameter in module.parameters(recurse=False))
    wanted = None if paths is None else {place for path in paths for place in (path, path.rpartition(".")[0])}
    found = {}
    for path, module in reversed(list(model.named_modules())):
        if (wanted is None or path in wanted) and _can_open(module):
            is_packed = isinstance(module, nn.MultiheadAttention)  # its last projection is a layer by itself
            if all(holders[id(parameter)] == 1 for parameter in module.parameters(recurse=not is_packed)):
                found[path] = module
    return found


def opened(model: nn.Module, paths: Iterable[str] | None = None) -> nn.Module:
    """A copy of the network, of the very same tensors, with its closed layers open; itself if it has none.

    With `paths`, those only that are or hold a layer at one of them.
    """
    closed = _closed(model, paths)
    if not closed:
        return model
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    for module in closed.values():
        memo[id(module)] = _opened(module, memo)
    return copied(model, memo)


def open_(model: nn.Module, paths: Iterable[str]) -> None:
    """Open the closed layers that are or hold a layer at one of these paths, in place."""
    for module in _closed(model, paths).values():
        become_(module, _opened(module))


def close_(model: nn.Module, like: nn.Module | None = None) -> nn.Module:
    """Close what is open and holds no stand-in, in place; norm the weights that are normed in `like`."""
    for module in list(model.modules()):
        if isinstance(module, Attention | Spread) and not any(True for _ in stand_ins(module)):
            become_(module, module.closed())
    for path, module in () if like is None else like.named_modules():
        mine = model.get_submodule(path) if is_weight_normed(module) else None
        if mine is not None and not isinstance(mine, Layer | Spread):
            become_(mine, normed_again(mine, module))
    return model


def norm_params(model: nn.Module) -> dict[str, int]:
    """How many parameters weight-normed layers have beside their weight, by the path of the open layer."""
    return {
        f"{path}.{TAPS}" if isinstance(module, Transposed) else path: norm_of(module).numel()
        for path, module in _closed(model).items()
        if is_weight_normed(module)
    }
