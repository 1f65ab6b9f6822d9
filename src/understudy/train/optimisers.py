"""Optimisers by name, and what they remember, as tensors that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from .recipe import Recipe

OptimiserName = Literal["sgd", "adamw"]


def make_optimiser(recipe: Recipe, groups: list[dict[str, Any]]) -> Optimizer:
    """The optimiser that a recipe names, for groups of parameters with their weight decay."""
    if recipe.optimiser == "adamw":
        first, second = recipe.betas
        return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(first, second))
    return torch.optim.SGD(
        groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov
    )


def check_optimiser(optimiser: Optimizer, network: nn.Module) -> None:
    """A ValueError unless all that it updates belongs to the network."""
    own = {id(parameter) for parameter in network.parameters()}
    strange = sum(id(one) not in own for group in optimiser.param_groups for one in group["params"])
    if strange:
        raise ValueError(
            f"{strange} parameters of the optimiser are not the model's: make it after the student, from its "
            "parameters"
        )


def memory_of(optimiser: Optimizer, network: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What an optimiser remembers of each parameter: tensors, and plain numbers, by `KEY.PARAMETER`."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for name, parameter in network.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{key}.{name}"] = value
            elif value is not None:
                numbers[f"{key}.{name}"] = value
    return tensors, numbers


def remember_(
    optimiser: Optimizer, network: nn.Module, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]
) -> None:
    """The inverse of `memory_of`."""
    parameters = dict(network.named_parameters())
    for full, value in {**tensors, **numbers}.items():
        key, _, name = full.partition(".")
        optimiser.state[parameters[name]][key] = _placed(value, parameters[name])


def _placed(value: Any, parameter: nn.Parameter) -> Any:
    """A tensor where the optimiser had it, laid out as the weights: another layout may round differently."""
    if not isinstance(value, Tensor):
        return value
    if value.shape == parameter.shape and value.dim():
        return torch.empty_like(parameter.detach(), dtype=value.dtype).copy_(value)
    return value.cpu() if not value.dim() else value.to(parameter.device)  # a counter of steps stays there
