"""Parameter groups for an optimiser: how much each decays, and how fast each learns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import nn

from understudy._util.guard import the_amount
from understudy.layers.layer import Layer, stand_ins

from .decay import Policy, Scope, weight_decay_groups

Rates = Literal["same", "fan", "size"]


def parameter_groups(
    model: nn.Module,
    weight_decay: float = 0.0,
    *,
    rates: Rates = "same",
    learning_rate: float | None = None,
    policy: Policy = "crs",
    scope: Scope = "layer",
    overrides: Mapping[str, Policy] | None = None,
    decay_vectors: bool = True,
) -> list[dict[str, Any]]:
    """The groups of `weight_decay_groups`, and with `rates` a learning rate for each factor.

    Under Adam a matrix should learn in inverse proportion to its fan-in. A factor of a stand-in has a fan-in
    of its own, so by `rates="fan"` it learns at `learning_rate` · in / (fan-in · factors), in being that of
    the matrix it stands in for; everything else learns at `learning_rate` (Qiu et al. 2024,
    arXiv:2406.06248). By `rates="size"` the factors of a stand-in learn in proportion to their root mean
    square, at `learning_rate` on average: for students that are fitted already, the factors of which may
    differ much. Both are meant for Adam and AdamW, which move every parameter by about its rate.

    >>> import torch, understudy as us
    >>> student = torch.nn.Sequential(torch.nn.Linear(64, 64))
    >>> us.substitute_(student, us.plan(student, "low_rank", knob=8), init="fresh") is student
    True
    >>> groups = parameter_groups(student, 0.1, rates="fan", learning_rate=1e-3)
    >>> sorted(group["lr"] for group in groups)  # V, all else, U
    [0.0005, 0.001, 0.004]
    >>> optimiser = torch.optim.AdamW(groups)
    """
    if rates not in get_args(Rates):
        raise ValueError(f"rates {rates!r} is not one of {', '.join(get_args(Rates))}")
    groups = weight_decay_groups(
        model, weight_decay, policy=policy, scope=scope, overrides=overrides, decay_vectors=decay_vectors
    )
    if learning_rate is not None:
        the_amount("learning_rate", learning_rate)
    if rates == "same":
        return groups if learning_rate is None else [{**group, "lr": learning_rate} for group in groups]
    if learning_rate is None or not learning_rate > 0:
        raise ValueError(f"rates {rates!r} needs a learning_rate above 0, not {learning_rate!r}")
    multipliers = rate_multipliers(model) if rates == "fan" else _size_multipliers(model)
    made: list[dict[str, Any]] = []
    for group in groups:
        by_rate: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_rate.setdefault(multipliers.get(id(parameter), 1.0), []).append(parameter)
        made += [
            {**group, "params": parameters, "lr": learning_rate * multiplier}
            for multiplier, parameters in by_rate.items()
        ]
    return made


def rate_multipliers(model: nn.Module) -> dict[int, float]:
    """By the identity of a parameter of a stand-in: how much faster than a dense matrix it should learn."""
    found: dict[int, float] = {}
    for module in model.modules():
        if isinstance(module, Layer):
            transform = module.transform
            fans = transform.fans(transform.in_features, transform.out_features, transform.knob)
            for name, parameter in transform.named_parameters():
                found[id(parameter)] = transform.in_features / (fans[name] * len(fans))
    return found


def _size_multipliers(model: nn.Module) -> dict[int, float]:
    """By the identity of a factor: how large it is beside those of its stand-in; 1 where it has no size."""
    sizes = parameter_sizes(model)
    found: dict[int, float] = {}
    for transform in (transform for _, layer in stand_ins(model) for transform in layer.transforms):
        factors = [id(parameter) for parameter in transform.parameters() if parameter.numel()]
        mean = sum(sizes[factor] for factor in factors) / max(len(factors), 1)
        shares = {factor: sizes[factor] / mean if mean else 0.0 for factor in factors}
        found |= {factor: share if 0 < share < math.inf else 1.0 for factor, share in shares.items()}
    return found


@torch.no_grad()
def parameter_sizes(model: nn.Module) -> dict[int, float]:
    """By the identity of a parameter its root mean square; none of norms and biases."""
    in_stand_ins = {
        id(parameter)
        for _, layer in stand_ins(model)
        for transform in layer.transforms
        for parameter in transform.parameters()
    }
    return {
        id(parameter): float(parameter.float().square().mean().sqrt())
        for parameter in model.parameters()
        if parameter.numel() and (parameter.dim() > 1 or id(parameter) in in_stand_ins)
    }
