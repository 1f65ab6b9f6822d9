"""The stages of an order as what plain modules hold: parameters themselves, or weights made of them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from understudy.transforms import Transform
from understudy.transforms.orders import FORMED
from understudy.transforms.stages import Blocks, Follow, Permute, Product, Scale, Stage

_CODE = 1 << 40  # above every number of entries; its multiples and squares are exact in float64
# Times as many entries: in eight bits each, they take what parameters take in single precision.
_MORE = 4


class Held(NamedTuple):
    """A stage whose weight is a parameter: one of the transform's, its entries moved, or made of them."""

    stage: Stage
    parameter: nn.Parameter | None  # None: the stage has no weight


def held_stages(transform: Transform, order: str) -> list[Held] | None:
    """The stages of an order with their parameters, or None where a weight is not just one parameter.

    Every entry of every parameter is given a number of its own: what the stages make of them tells which
    entry is where, and no sum or product of such numbers is one of them.
    """
    parameters = dict(transform.named_parameters())
    if order == FORMED:  # one parameter, its entries moved, or none
        if [each.numel() for each in parameters.values()] != [transform.in_features * transform.out_features]:
            return None
    elif transform.legal_order(order).per_call:
        return None
    probe = copy.deepcopy(transform).to("cpu").double()
    starts: dict[str, int] = {}
    start = _CODE
    with torch.no_grad():
        for name, parameter in probe.named_parameters():
            starts[name] = start
            codes = torch.arange(start, start + parameter.numel(), dtype=torch.float64)
            parameter.copy_(codes.reshape(parameter.shape))
            start += parameter.numel()
        stages = probe.prepare(order)
        held: list[Held] = []
        for stage in stages:
            if isinstance(stage, Permute):
                held.append(Held(stage, None))
                continue
            if not isinstance(stage, Product | Blocks | Follow | Scale):
                return None
            numbers = stage.weight.flatten()
            source = _source(numbers, starts, parameters)
            if source is None:
                return None
            parameter, places = source
            values = parameter.detach().flatten()[places.to(parameter.device)].reshape(stage.weight.shape)
            moved = nn.Parameter(values.contiguous(), parameter.requires_grad)
            held.append(Held(stage._replace(weight=moved), moved))
    return held if entries(held) == sum(parameter.numel() for parameter in parameters.values()) else None


def _source(
    numbers: Tensor, starts: dict[str, int], parameters: dict[str, nn.Parameter]
) -> tuple[nn.Parameter, Tensor] | None:
    """The parameter that these are the numbers of, each once, and where each entry comes from."""
    for name, start in starts.items():
        places = numbers - start
        if len(places) == parameters[name].numel():
            wanted = torch.arange(len(places), dtype=torch.float64)
            if torch.equal(places.sort().values, wanted):
                return parameters[name], places.long()
    return None


def together(groups: Sequence[list[Held]]) -> list[Held] | None:
    """The stages of equal, consecutive groups of channels as stages of all; None where some are not that."""
    if len(groups) == 1:
        return groups[0]
    joined = [_joined(turn) for turn in zip(*groups, strict=True)]  # one stage of every group
    found = [item for item in joined if item is not None]
    return found if len(found) == len(joined) else None


def _joined(turn: Sequence[Held]) -> Held | None:
    stages = [item.stage for item in turn]
    first = stages[0]
    if isinstance(first, Permute):
        axes = (0, *(1 + axis for axis in first.axes))
        return Held(Permute((len(turn), *first.sizes), axes), None)
    parameters = [item.parameter for item in turn if item.parameter is not None]
    if isinstance(first, Product) and first.plain:
        joined = torch.stack([parameter.detach() for parameter in parameters])
    elif isinstance(first, Blocks | Scale):
        joined = torch.cat([parameter.detach() for parameter in parameters])
    else:
        return None
    weight = nn.Parameter(joined, any(parameter.requires_grad for parameter in parameters))
    return Held(Scale(weight) if isinstance(first, Scale) else Blocks(weight), weight)


def fixed_stages(transform: Transform, order: str, *, grouped: bool) -> list[Held] | None:
    """The stages of an order with their weights as they are now; `grouped`, each slice with its own.

    None where those are too many, or where a stage is of a kind of its own.
    """
    trained = any(parameter.requires_grad for parameter in transform.parameters())
    held: list[Held] = []
    with torch.no_grad():
        for stage in transform.prepare(order):
            if isinstance(stage, Permute):
                held.append(Held(stage, None))
                continue
            if grouped and isinstance(stage, Product) and stage.left > 1 and stage.run:
                stage = Blocks(stage.weight.expand(stage.left, -1, -1))
            if not isinstance(stage, Product | Blocks | Follow | Scale):
                return None
            weight = nn.Parameter(stage.weight.detach().clone(), trained)
            held.append(Held(stage._replace(weight=weight), weight))
    return held if is_held(entries(held), [transform]) else None


def is_held(count: int, transforms: Sequence[Transform]) -> bool:
    """Whether so many entries may be held instead of the parameters that they are made of."""
    return count <= _MORE * sum(each.numel() for transform in transforms for each in transform.parameters())


def entries(held: Sequence[Held]) -> int:
    """How many the weights of all stages have."""
    return sum(item.parameter.numel() for item in held if item.parameter is not None)
