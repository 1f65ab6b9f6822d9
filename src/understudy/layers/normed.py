"""Weight-normed layers: dense ones whose weight is g · v / ‖v‖, computed at every call."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from .geometry import DenseConv
from .spread import Transposed

_PARTS = "parametrizations"


def is_weight_normed(module: nn.Module) -> bool:
    """Whether torch.nn.utils.parametrizations.weight_norm, and nothing else, computes a dense layer's weight.

    >>> is_weight_normed(nn.utils.parametrizations.weight_norm(nn.Linear(3, 5)))
    True
    >>> is_weight_normed(nn.Linear(3, 5))
    False
    """
    if not isinstance(module, nn.Linear | DenseConv | Transposed) or not is_parametrized(module):
        return False
    computed = module.get_submodule(_PARTS)._modules
    steps = computed.get("weight")
    if len(computed) > 1 or not isinstance(steps, ParametrizationList):
        return False
    return len(steps) == 1 and type(steps[0]) is _WeightNorm


def norm_of(module: nn.Module) -> nn.Parameter:
    """g of a weight-normed layer."""
    return module.get_parameter(f"{_PARTS}.weight.original0")


@torch.no_grad()
def bared(module: nn.Module) -> nn.Module:
    """A weight-normed layer as the plain one that it computes as; all else are the very same tensors."""
    made: nn.Module = nn.Module.__new__(type(module).__bases__[0])
    vars(made).update({name: copy.copy(value) for name, value in vars(module).items()})
    del made._modules[_PARTS]
    trained = any(parameter.requires_grad for parameter in module.get_submodule(_PARTS).parameters())
    made._parameters = {"weight": nn.Parameter(_weight(module), trained), **made._parameters}
    return made


@torch.no_grad()
def normed_again(plain: nn.Module, like: nn.Module) -> nn.Module:
    """A copy of a weight-normed layer with a plain one's weight and bias; g and v stay where they fit."""
    made = copy.deepcopy(like)
    weight = plain.get_parameter("weight").detach()
    if not torch.equal(weight, _weight(like)):
        made.weight = weight.clone()
    for name, parameter in made.named_parameters(recurse=False):
        parameter.copy_(plain.get_parameter(name))
    return made


def _weight(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach()
