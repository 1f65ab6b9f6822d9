"""Spend a budget over layers: one shared scale first, then what is left layer by layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from understudy._util.quantities import format_count

from .budget import BudgetError


@dataclasses.dataclass(frozen=True)
class Ladder:
    """What one layer may cost: its knobs, cheapest first, up to the last that is worth its price."""

    knobs: Sequence[int]
    top: int  # index of the highest affordable knob
    cost: Callable[[int], int]  # knob → cost
    knob_at: Callable[[float], int]

    def rung_at(self, scale: float) -> int:
        """The rung of a normalised scale."""
        return min(self.knobs.index(self.knob_at(scale)), self.top)

    def cost_at(self, rung: int) -> int:
        """The cost of a rung."""
        return self.cost(self.knobs[rung])


def highest_within(knobs: Sequence[int], cost: Callable[[int], int], limit: int) -> int:
    """Index of the last knob that costs no more than `limit`, or -1; costs never fall along the knobs."""
    low, high = -1, len(knobs) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if cost(knobs[middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def spend(ladders: Sequence[Ladder], fixed: int, budget: int, unit: str) -> list[int]:
    """A knob for every ladder so that `fixed` and all costs come to at most `budget`, and near it."""
    lowest = fixed + sum(ladder.cost_at(0) for ladder in ladders)
    highest = fixed + sum(ladder.cost_at(ladder.top) for ladder in ladders)
    if not lowest <= budget <= highest:
        side = "below" if budget < lowest else "above"
        reach = f"{lowest:,}" if lowest == highest else f"{lowest:,} to {highest:,}"
        hint = "" if budget < lowest else "; scale=1 gives the most"
        raise BudgetError(
            f"{format_count(budget)} {unit} is {side} what is reachable: {reach}{hint}",
            lowest,
        )

    def total(rungs: Sequence[int]) -> int:
        return fixed + sum(ladder.cost_at(rung) for ladder, rung in zip(ladders, rungs, strict=True))

    low, high = 0.0, 1.0
    rungs = [0] * len(ladders)
    for _ in range(50):
        middle = (low + high) / 2
        trial = [ladder.rung_at(middle) for ladder in ladders]
        if total(trial) <= budget:
            low, rungs = middle, trial
        else:
            high = middle
    left = budget - total(rungs)
    climbed, unspent = _climb(ladders, rungs, left, coarse_first=False)
    if unspent > _WASTE * budget:
        bottom = [0] * len(ladders)
        others = [
            _climb(ladders, rungs, left, coarse_first=True),
            _climb(ladders, bottom, budget - lowest, coarse_first=True),
        ]
        climbed, unspent = min((climbed, unspent), *others, key=_unspent)
    return [ladder.knobs[rung] for ladder, rung in zip(ladders, climbed, strict=True)]


_WASTE = 0.005  # share of the budget that may stay unspent before another order is tried


def _unspent(climb: tuple[list[int], int]) -> int:
    return climb[1]


def _climb(
    ladders: Sequence[Ladder], start: Sequence[int], left: int, *, coarse_first: bool
) -> tuple[list[int], int]:
    """Raise rungs one at a time, round by round, while any step fits; returns them and what is left.

    Layers take turns in the order of the network, or those with the largest step first: the fine steps
    then fill what the coarse ones leave.
    """
    rungs = list(start)
    climbing = True
    while climbing:
        climbing = False
        steps = [
            (ladder.cost_at(rungs[k] + 1) - ladder.cost_at(rungs[k]), k)
            for k, ladder in enumerate(ladders)
            if rungs[k] < ladder.top
        ]
        for step, k in sorted(steps, reverse=True) if coarse_first else steps:
            if step <= left:
                rungs[k] += 1
                left -= step
                climbing = True
    return rungs, left
