"""Networks with their attentions open: copies in which every projection is a layer; and closed again."""

from __future__ import annotations

import collections
import copy
from collections.abc import Iterable
from typing import Any

from torch import nn

from understudy._util.modules import become_

from .attention import Attention
from .layer import stand_ins


def why_closed(module: nn.Module) -> str | None:
    """Why an attention cannot be opened, by itself; None where it can, or is none."""
    if not isinstance(module, nn.MultiheadAttention) or isinstance(module, Attention):
        return None
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


def attentions(model: nn.Module) -> dict[str, nn.MultiheadAttention]:
    """The attentions of a network that can be opened, by path: those that share nothing with others."""
    holders: collections.Counter[int] = collections.Counter()
    for module in model.modules():
        holders.update(id(parameter) for parameter in module.parameters(recurse=False))
    return {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.MultiheadAttention)
        and not isinstance(module, Attention)
        and why_closed(module) is None
        and all(holders[id(parameter)] == 1 for parameter in module.parameters(recurse=False))
    }


def _holding(model: nn.Module, paths: Iterable[str] | None) -> list[nn.MultiheadAttention]:
    """The attentions that hold a layer at one of these paths; all of them for None."""
    found = attentions(model)
    if paths is None:
        return list(found.values())
    parents = {path.rpartition(".")[0] for path in paths}
    return [attention for path, attention in found.items() if path in parents]


def opened(model: nn.Module, paths: Iterable[str] | None = None) -> nn.Module:
    """A copy of the network, of the very same tensors, with its attentions open; itself if it has none.

    With `paths`, those attentions only that hold a layer at one of them.
    """
    wanted = _holding(model, paths)
    if not wanted:
        return model
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        memo[id(tensor)] = tensor
    for attention in wanted:
        memo[id(attention)] = Attention(attention, copy.deepcopy(attention.out_proj, memo))
    return copy.deepcopy(model, memo)


def open_(model: nn.Module, paths: Iterable[str]) -> None:
    """Open the attentions that hold a layer at one of these paths, in place."""
    for attention in _holding(model, paths):
        become_(attention, Attention(attention))


def close_(model: nn.Module) -> nn.Module:
    """Close the attentions in which nothing stands in for a projection, in place."""
    for module in list(model.modules()):
        if isinstance(module, Attention) and not any(True for _ in stand_ins(module)):
            become_(module, module.packed())
    return model
