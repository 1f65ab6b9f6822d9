"""Spend a budget over layers: one setting shared by all first, then what is left layer by layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

_WASTE = 0.005  # share of the budget that may stay unspent before another order is tried


@dataclasses.dataclass(frozen=True)
class Ladder:
    """What one layer may cost: its knobs that are worth their price, cheapest first, then the dense layer."""

    knobs: Sequence[int]
    cost: Callable[[int], int]  # knob → cost, never falling along the knobs
    dense: int  # what it costs as it is, no less than any knob
    rung_at: Callable[[float], int]  # the rung of a setting in 0..1 that all layers share, never falling

    @property
    def top(self) -> int:
        """The last rung: the layer stays dense."""
        return len(self.knobs)

    def cost_at(self, rung: int) -> int:
        """The cost of a rung."""
        return self.dense if rung == self.top else self.cost(self.knobs[rung])

    def knob_at(self, rung: int) -> int | None:
        """The knob of a rung; None on the last, where the layer stays dense."""
        return None if rung == self.top else self.knobs[rung]


def highest_within(knobs: Sequence[int], cost: Callable[[int], int], limit: float) -> int:
    """Index of the last knob that costs no more than `limit`, or -1; costs never fall along the knobs."""
    low, high = -1, len(knobs) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if cost(knobs[middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def rising_along(knobs: Sequence[int], cost: Callable[[int], int]) -> list[int]:
    """The knobs in whose order the cost never falls: one that costs more than a later one is left out."""
    kept: list[int] = []
    for knob in reversed(knobs):
        if not kept or cost(knob) <= cost(kept[-1]):
            kept.append(knob)
    return kept[::-1]


def lowest_cost(ladders: Sequence[Ladder], fixed: int) -> int:
    """The cost of the cheapest student."""
    return fixed + sum(ladder.cost_at(0) for ladder in ladders)


def structured_cost(ladders: Sequence[Ladder], fixed: int) -> int:
    """The cost of the dearest student in which every layer that can be is structured."""
    return fixed + sum(ladder.cost_at(max(0, ladder.top - 1)) for ladder in ladders)


def spend(ladders: Sequence[Ladder], fixed: int, budget: int) -> list[int | None]:
    """A knob for every ladder (None: stays dense) so that `fixed` and all costs come to at most `budget`.

    The budget is no less than `lowest_cost`. A layer with knobs stays dense only where structure alone does
    not use the whole budget.
    """
    fits = budget <= structured_cost(ladders, fixed)
    tops = [max(0, ladder.top - 1) if fits else ladder.top for ladder in ladders]

    def rungs_at(setting: float) -> list[int]:
        return [min(ladder.rung_at(setting), top) for ladder, top in zip(ladders, tops, strict=True)]

    def total(rungs: Sequence[int]) -> int:
        return fixed + sum(ladder.cost_at(rung) for ladder, rung in zip(ladders, rungs, strict=True))

    low, high = 0.0, 1.0
    rungs = rungs_at(high)
    if total(rungs) > budget:
        rungs = [0] * len(ladders)
        for _ in range(50):
            middle = (low + high) / 2
            trial = rungs_at(middle)
            if total(trial) <= budget:
                low, rungs = middle, trial
            else:
                high = middle
    left = budget - total(rungs)
    climbed, unspent = _climb(ladders, tops, rungs, left, coarse_first=False)
    if unspent > _WASTE * budget:
        bottom = [0] * len(ladders)
        others = [
            _climb(ladders, tops, rungs, left, coarse_first=True),
            _climb(ladders, tops, bottom, budget - total(bottom), coarse_first=True),
        ]
        climbed, unspent = min((climbed, unspent), *others, key=_unspent)
    return [ladder.knob_at(rung) for ladder, rung in zip(ladders, climbed, strict=True)]


def top_up(ladders: Sequence[Ladder], chosen: Sequence[int | None], left: int) -> list[int | None]:
    """Knobs raised within what is left of a budget, where each step is largest first; none becomes dense."""
    knobs = list(chosen)
    for k in sorted(range(len(ladders)), key=lambda k: -ladders[k].dense):
        ladder, knob = ladders[k], knobs[k]
        if knob is not None:
            held = ladder.cost(knob)
            raised = ladder.knobs[highest_within(ladder.knobs, ladder.cost, held + left)]
            left -= ladder.cost(raised) - held
            knobs[k] = raised
    return knobs


def _unspent(climb: tuple[list[int], int]) -> int:
    return climb[1]


def _climb(
    ladders: Sequence[Ladder], tops: Sequence[int], start: Sequence[int], left: int, *, coarse_first: bool
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
            if rungs[k] < tops[k]
        ]
        for step, k in sorted(steps, reverse=True) if coarse_first else steps:
            if step <= left:
                rungs[k] += 1
                left -= step
                climbing = True
    return rungs, left
