"""Spending a budget: never above it, nothing affordable left, and an exact range when it is out of reach."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.planning.budget import BudgetError
from understudy.planning.spend import Ladder, highest_within, spend

# A busy machine is no failure, and a run that fails fails again.
STEADY = settings(deadline=None, derandomize=True, max_examples=200)


def ladder_of(costs: list[int], top: int, falling: bool = False) -> Ladder:
    """A ladder with these costs; its knobs rise with them, or fall as the groups of a shuffle do."""
    knobs = range(len(costs), 0, -1) if falling else range(1, len(costs) + 1)

    def cost(knob: int) -> int:
        return costs[knobs.index(knob)]

    def knob_at(scale: float) -> int:
        return knobs[min(int(scale * len(costs)), len(costs) - 1)]

    return Ladder(tuple(knobs), top, cost, knob_at)


@st.composite
def ladders(draw: st.DrawFn, largest_step: int = 50) -> Ladder:
    """Costs that never fall, some rungs as dear as the one before, and a top that may be below the last."""
    steps = draw(st.lists(st.integers(0, largest_step), min_size=1, max_size=9))
    costs = list(itertools.accumulate(steps))
    return ladder_of(costs, draw(st.integers(0, len(costs) - 1)), draw(st.booleans()))


def total(group: list[Ladder], knobs: list[int], fixed: int) -> int:
    return fixed + sum(ladder.cost(knob) for ladder, knob in zip(group, knobs, strict=True))


def ends(group: list[Ladder], fixed: int) -> tuple[int, int]:
    lowest = fixed + sum(ladder.cost_at(0) for ladder in group)
    return lowest, fixed + sum(ladder.cost_at(ladder.top) for ladder in group)


@STEADY
@given(st.lists(ladders(), min_size=1, max_size=6), st.integers(0, 100), st.data())
def test_spending_never_exceeds_the_budget_and_leaves_no_step_that_fits(
    group: list[Ladder], fixed: int, data: st.DataObject
) -> None:
    lowest, highest = ends(group, fixed)
    budget = data.draw(st.integers(lowest, highest))
    knobs = spend(group, fixed, budget, "parameters")
    left = budget - total(group, knobs, fixed)
    assert left >= 0
    for ladder, knob in zip(group, knobs, strict=True):
        rung = ladder.knobs.index(knob)
        assert rung <= ladder.top
        if rung < ladder.top:
            assert ladder.cost_at(rung + 1) - ladder.cost_at(rung) > left


@STEADY
@given(st.lists(ladders(largest_step=2), min_size=1, max_size=6), st.integers(0, 9), st.data())
def test_steps_of_one_or_two_land_within_one_of_the_budget(
    group: list[Ladder], fixed: int, data: st.DataObject
) -> None:
    lowest, highest = ends(group, fixed)
    budget = data.draw(st.integers(lowest, highest))
    assert 0 <= budget - total(group, spend(group, fixed, budget, "parameters"), fixed) <= 1


@STEADY
@given(st.lists(ladders(), min_size=1, max_size=6), st.integers(0, 100), st.integers(1, 1000), st.booleans())
def test_a_budget_out_of_reach_is_refused_with_the_exact_range(
    group: list[Ladder], fixed: int, beyond: int, above: bool
) -> None:
    lowest, highest = ends(group, fixed)
    budget = highest + beyond if above else lowest - beyond
    with pytest.raises(BudgetError) as caught:
        spend(group, fixed, budget, "parameters")
    assert (caught.value.lowest, caught.value.highest) == (lowest, highest)
    reach = f"{lowest:,} to {highest:,}" if lowest < highest else f"{lowest:,}"
    assert f"{'above' if above else 'below'} what is reachable: {reach}" in str(caught.value)
    assert "parameters" in str(caught.value)
    assert total(group, spend(group, fixed, lowest, "parameters"), fixed) == lowest
    assert total(group, spend(group, fixed, highest, "parameters"), fixed) == highest


def test_spending_starts_from_one_scale_shared_by_all() -> None:
    group = [ladder_of(list(range(10, 1010, 10)), 99) for _ in range(4)]
    assert spend(group, 0, 4 * 500, "parameters") == [50] * 4
    knobs = spend(group, 0, 4 * 500 + 25, "parameters")
    assert sorted(knobs) == [50, 50, 51, 51]


def test_fine_steps_are_taken_again_and_again_where_the_next_coarse_one_is_too_dear() -> None:
    group = [ladder_of([0, 50], 1), ladder_of(list(range(40)), 39), ladder_of(list(range(0, 80, 2)), 39)]
    assert total(group, spend(group, 0, 97, "parameters"), 0) == 97


def test_coarse_steps_go_first_where_taking_turns_would_waste_the_budget() -> None:
    fine, coarse = ladder_of([0, 30], 1), ladder_of([0, 100], 1)
    knobs = spend([fine, coarse], 0, 100, "parameters")
    assert total([fine, coarse], knobs, 0) == 100


@STEADY
@given(ladders(), st.integers(-5, 500))
def test_the_highest_knob_within_a_limit_is_that_of_a_search_through_all(ladder: Ladder, limit: int) -> None:
    affordable = [rung for rung, knob in enumerate(ladder.knobs) if ladder.cost(knob) <= limit]
    assert highest_within(ladder.knobs, ladder.cost, limit) == max(affordable, default=-1)


def test_no_knob_is_within_any_limit_when_there_is_none() -> None:
    assert highest_within((), lambda knob: knob, 10) == -1


def test_the_scale_is_cut_off_at_the_top() -> None:
    ladder = ladder_of([1, 2, 3, 4], top=1)
    assert [ladder.rung_at(scale) for scale in (0.0, 0.3, 0.6, 1.0)] == [0, 1, 1, 1]
