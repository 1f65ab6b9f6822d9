"""Frobenius decay: what decays is the matrix, not its factors (Khodak et al. 2021, arXiv:2105.01029)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from understudy._util.guard import the_amount, the_network
from understudy.layers.layer import Layer

from .decay import Policy


def frobenius_decay(
    model: nn.Module,
    weight_decay: float,
    *,
    policy: Policy = "frobenius",
    overrides: Mapping[str, Policy] | None = None,
) -> Tensor:
    """½ · `weight_decay` · Σ ‖W‖² over the stand-ins whose policy is "frobenius": add it to the loss.

    Its gradient is that of plain decay of the dense matrices. `parameter_groups(…, policy="frobenius")` gives
    their factors no other decay. Each call forms the matrices.

    >>> import torch, understudy as us
    >>> student = torch.nn.Sequential(torch.nn.Linear(64, 64))
    >>> us.substitute_(student, us.plan(student, "low_rank", knob=8), init="fresh") is student
    True
    >>> bool(frobenius_decay(student, 5e-4) > 0)
    True
    """
    the_network(model)
    the_amount("weight_decay", weight_decay)
    overrides = overrides or {}
    found = dict.fromkeys(module.transform for module in model.modules() if isinstance(module, Layer))
    squares = [
        transform.matrix().float().square().sum()
        for transform in found
        if overrides.get(transform.name, policy) == "frobenius"
    ]
    return 0.5 * weight_decay * torch.stack(squares).sum() if squares else torch.zeros(())
