"""Weight decay for structured matrices: d becomes d · M/N for M parameters standing in for N."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from torch import nn

from understudy._util.guard import the_amount, the_network
from understudy.layers.layer import Layer
from understudy.transforms import Transform, get_transform

Policy = Literal["crs", "none", "frobenius"]
Scope = Literal["layer", "network"]


def weight_decay_groups(
    model: nn.Module,
    weight_decay: float,
    *,
    policy: Policy = "crs",
    scope: Scope = "layer",
    overrides: Mapping[str, Policy] | None = None,
    decay_vectors: bool = True,
) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser that partition the model's parameters, one for each amount of decay.

    `policy="crs"` scales the decay of a structured matrix by its compression ratio, its own
    (`scope="layer"`) or that of all structured matrices together (`scope="network"`); "none" leaves it as it
    is; "frobenius" takes it away, for `frobenius_decay` lets the matrix decay. `overrides` gives single
    transforms another policy, `{"hashed": "none"}`. Biases and norms, the vectors, decay as everything else
    unless `decay_vectors` is off. Parameters are told apart by the type of the module that holds them.

    >>> import torch, understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5), init="fresh")
    >>> optimiser = torch.optim.SGD(weight_decay_groups(student, 5e-4), lr=0.1)
    """
    the_network(model)
    the_amount("weight_decay", weight_decay)
    overrides = dict(overrides or {})
    for name in overrides:
        get_transform(name)
    choices: list[tuple[str, str, Any]] = [("policy", policy, Policy), ("scope", scope, Scope)]
    choices += [(f"policy of {name}", value, Policy) for name, value in overrides.items()]
    for label, value, legal in choices:
        if value not in get_args(legal):
            raise ValueError(f"{label} {value!r} is not one of {', '.join(get_args(legal))}")
    transforms = list(
        dict.fromkeys(module.transform for module in model.modules() if isinstance(module, Layer))
    )
    whole = _ratio(transforms)
    amounts: dict[int, float] = {}  # parameter identity → its decay, where it is not the plain one
    for transform in transforms:
        chosen, ratio = overrides.get(transform.name, policy), 1.0
        if chosen == "crs":
            ratio = _ratio([transform]) if scope == "layer" else whole
        amount = 0.0 if chosen == "frobenius" else weight_decay * ratio
        amounts |= {id(parameter): amount for parameter in transform.parameters()}
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        plain = weight_decay if decay_vectors or parameter.dim() > 1 else 0.0
        groups.setdefault(amounts.get(id(parameter), plain), []).append(parameter)
    return [{"params": parameters, "weight_decay": amount} for amount, parameters in groups.items()]


def _ratio(transforms: list[Transform]) -> float:
    """Parameters of structured matrices over the entries they stand for."""
    held = sum(parameter.numel() for transform in transforms for parameter in transform.parameters())
    entries = sum(transform.in_features * transform.out_features for transform in transforms)
    return held / entries if entries else 1.0
