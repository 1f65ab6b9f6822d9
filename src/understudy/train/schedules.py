"""The learning rate of every step, as a share of the rate that was asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .recipe import Recipe

Schedule = Literal["step", "cosine", "one_cycle"]
_FIRST, _LAST = 1 / 25, 1 / 250_000  # of one cycle: where it begins, and where it ends


def rate_factor(recipe: Recipe, epoch: int, step: int, steps: int) -> float:
    """What to multiply the rate by, at a step of `steps` in the whole run.

    `step` falls by `gamma` at each milestone and `cosine` along half a cosine to zero, both by epochs;
    `one_cycle` rises along a cosine for the share `rise` of all steps and falls along another to almost zero.
    """
    if recipe.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * epoch / recipe.epochs))
    if recipe.schedule == "one_cycle":
        top = recipe.rise * steps - 1
        if step <= top:
            return _along(_FIRST, 1.0, step / top if top else 1.0)
        return _along(1.0, _LAST, (step - top) / max(steps - 1 - top, 1e-9))
    return float(recipe.gamma ** sum(epoch >= milestone for milestone in recipe.milestones))


def _along(start: float, end: float, share: float) -> float:
    """Half a cosine from one value to another."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
