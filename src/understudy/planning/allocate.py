"""Spend a budget where it loses least: one choice for every layer so that the sum of losses is small."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from understudy.layers.replacement import Way


@dataclasses.dataclass(frozen=True)
class Choice:
    """One form that a layer may take; no knob is the dense layer, which loses nothing."""

    cost: int
    loss: float
    transform: str = ""
    way: Way = "pointwise"
    knob: int | None = None


def allocate(layers: Sequence[Sequence[Choice]], budget: int) -> list[Choice]:
    """For every layer one of its choices, so that their cost is at most `budget` and their loss nearly least.

    Minimising loss + λ · cost finds the best choices on the lower hull of each layer; bisection finds the λ
    that meets the budget, and what is left is spent where it gains most for its price. The cheapest choices
    must be within the budget.
    """
    fronts = [_front(choices) for choices in layers]
    hulls = [_hull(front) for front in fronts]

    def cheapest_at(price: float) -> list[Choice]:
        return [min(hull, key=lambda choice: choice.loss + price * choice.cost) for hull in hulls]

    low, high = 0.0, 1e-12
    chosen = cheapest_at(0.0)
    if _cost(chosen) > budget:
        while _cost(cheapest_at(high)) > budget:
            low, high = high, 4 * high
        for _ in range(60):
            middle = (low * high) ** 0.5 if low else high / 2
            low, high = (middle, high) if _cost(cheapest_at(middle)) > budget else (low, middle)
        chosen = cheapest_at(high)
    return _fill(fronts, chosen, budget - _cost(chosen))


def _cost(chosen: Sequence[Choice]) -> int:
    return sum(choice.cost for choice in chosen)


def _front(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that no other beats in both cost and loss, cheapest first."""
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda choice: (choice.cost, choice.loss)):
        if not kept or choice.loss < kept[-1].loss:
            kept.append(choice)
    return kept


def _hull(front: Sequence[Choice]) -> list[Choice]:
    """The corners of the lower convex hull of a front."""
    corners: list[Choice] = []
    for choice in front:
        while len(corners) > 1 and _slope(corners[-2], corners[-1]) >= _slope(corners[-1], choice):
            corners.pop()
        corners.append(choice)
    return corners


def _slope(cheap: Choice, dear: Choice) -> float:
    return (dear.loss - cheap.loss) / (dear.cost - cheap.cost)


def _fill(fronts: Sequence[Sequence[Choice]], chosen: list[Choice], left: int) -> list[Choice]:
    """Take the step with the most gain for its price, again and again, while one fits."""
    chosen = list(chosen)
    while True:
        steps = [
            ((now.loss - choice.loss) / (choice.cost - now.cost), number, choice)
            for number, (front, now) in enumerate(zip(fronts, chosen, strict=True))
            for choice in front
            if now.cost < choice.cost <= now.cost + left
        ]
        if not steps:
            return chosen
        _, number, choice = max(steps, key=lambda step: step[0])
        left -= choice.cost - chosen[number].cost
        chosen[number] = choice
