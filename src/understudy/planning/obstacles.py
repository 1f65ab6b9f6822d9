"""Why a module cannot be substituted, whatever the caller asks for."""

from __future__ import annotations

import collections

from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from understudy.layers.alike import computes_as
from understudy.layers.dense import Kind, dense_map
from understudy.layers.geometry import DenseConv
from understudy.layers.layer import Layer
from understudy.layers.opening import why_closed, why_computed
from understudy.layers.spread import Transposed

_METHODS = ("forward", "_conv_forward")


def kind_of(module: nn.Module) -> Kind:
    """Which dense layer a module is, if it is one."""
    dense = dense_map(module)
    return "other" if dense is None else dense.kind


def weight_owners(model: nn.Module) -> dict[int, list[str]]:
    """The paths of the modules that hold each parameter, by the parameter's identity."""
    owners: dict[int, list[str]] = collections.defaultdict(list)
    for path, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)].append(path)
    return owners


def obstacle(path: str, module: nn.Module, owners: dict[int, list[str]]) -> str | None:
    """Why a module cannot be substituted, whatever the caller asks for."""
    if isinstance(module, Layer):
        return "already substituted"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "an embedding looks rows up and multiplies nothing"
    if isinstance(module, nn.MultiheadAttention | Transposed):
        return why_closed(module) or _sharing(path, module, owners)
    dense = dense_map(module)
    if dense is None:
        name = f"{type(module).__module__}.{type(module).__name__}"
        return f"{name} is neither torch's Linear nor a convolution"
    if any(is_lazy(parameter) for parameter in module.parameters(recurse=False)):
        return "its shape is not known before its first call"
    if any(name in vars(module) for name in _METHODS):
        return f"{type(module).__name__} computes in its own way"
    computed = why_computed(module)
    if computed is not None:
        return computed
    weight = module.get_parameter("weight")
    held: object = weight
    if is_traceable_wrapper_subclass(held):  # quantised or sharded by others
        return f"its weight is a {type(weight).__name__}, not a plain tensor: make stand-ins before that"
    if not weight.is_floating_point():
        return f"its weight is {weight.dtype}, not floating point"
    if weight.element_size() < 2:
        return f"its weight is {weight.dtype}, with which torch does not compute"
    if not _computes_as_torch(module, dense.parent):
        return f"{type(module).__name__} computes in its own way"
    sharing = _sharing(path, module, owners)
    if sharing is not None:
        return sharing
    if isinstance(module, DenseConv) and 1 < module.groups == module.in_channels:
        return "already depthwise"
    return None


def _sharing(path: str, module: nn.Module, owners: dict[int, list[str]]) -> str | None:
    """Which parameter of its own a module shares with which other module, if any."""
    for name, parameter in module.named_parameters(recurse=False):
        others = [owner or "the network itself" for owner in owners[id(parameter)] if owner != path]
        if others:
            return f"its {name} is shared with {others[0]}"
    return None


def _computes_as_torch(module: nn.Module, parent: type[nn.Module] | None) -> bool:
    """Whether a subclass of a layer of torch computes what that does; a look-alike is known to."""
    if parent is None:
        return True
    same = all(getattr(type(module), name, None) == getattr(parent, name, None) for name in _METHODS)
    return same or computes_as(module, parent)
