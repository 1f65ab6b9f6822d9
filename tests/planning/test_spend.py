"""Spending a budget: never above it, nothing affordable left, everything from the cheapest to dense met."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.planning.spend import Ladder, highest_within, lowest_cost, spend, structured_cost

# A busy machine is no failure, and a run that fails fails again.
STEADY = settings(deadline=None, derandomize=True, max_examples=200)


def ladder_of(costs: list[int], dense: int | None = None, falling: bool = False) -> Ladder:
    """A ladder with these costs; its knobs rise with them, or fall as the groups of a shuffle do."""
    knobs = tuple(range(len(costs), 0, -1) if falling else range(1, len(costs) + 1))

    def cost(knob: int) -> int:
        return costs[knobs.index(knob)]

    def rung_at(setting: float) -> int:
        return min(int(setting * (len(costs) + 1)), len(costs))

    return Ladder(knobs, cost, max([0, *costs]) + 10 if dense is None else dense, rung_at)


@st.composite
def ladders(draw: st.DrawFn, largest_step: int = 50) -> Ladder:
    """Costs that never fall, some rungs as dear as the one before; a layer may have no knob at all."""
    steps = draw(st.lists(st.integers(0, largest_step), min_size=0, max_size=9))
    costs = list(itertools.accumulate(steps))
    dense = max([0, *costs]) + draw(st.integers(0, largest_step))
    return ladder_of(costs, dense, draw(st.booleans()))


def rung_of(ladder: Ladder, knob: int | None) -> int:
    return ladder.top if knob is None else ladder.knobs.index(knob)


def total(group: list[Ladder], knobs: list[int | None], fixed: int) -> int:
    chosen = zip(group, knobs, strict=True)
    return fixed + sum(ladder.cost_at(rung_of(ladder, knob)) for ladder, knob in chosen)


def dense_cost(group: list[Ladder], fixed: int) -> int:
    return fixed + sum(ladder.dense for ladder in group)


@STEADY
@given(st.lists(ladders(), min_size=1, max_size=6), st.integers(0, 100), st.data())
def test_spending_never_exceeds_the_budget_and_leaves_no_step_that_fits(
    group: list[Ladder], fixed: int, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(lowest_cost(group, fixed), dense_cost(group, fixed)))
    knobs = spend(group, fixed, budget)
    left = budget - total(group, knobs, fixed)
    assert left >= 0
    structure_suffices = budget <= structured_cost(group, fixed)
    for ladder, knob in zip(group, knobs, strict=True):
        rung = rung_of(ladder, knob)
        if structure_suffices and ladder.knobs:
            assert knob is not None, "a layer stays dense though structure could use the budget"
        if rung < ladder.top - structure_suffices:
            assert ladder.cost_at(rung + 1) - ladder.cost_at(rung) > left


@STEADY
@given(st.lists(ladders(largest_step=2), min_size=1, max_size=6), st.integers(0, 9), st.data())
def test_steps_of_one_or_two_land_within_one_of_the_budget(
    group: list[Ladder], fixed: int, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(lowest_cost(group, fixed), dense_cost(group, fixed)))
    assert 0 <= budget - total(group, spend(group, fixed, budget), fixed) <= 1


@STEADY
@given(st.lists(ladders(), min_size=1, max_size=6), st.integers(0, 100), st.integers(0, 1000))
def test_both_ends_are_met_exactly_and_more_than_the_dense_network_is_the_dense_network(
    group: list[Ladder], fixed: int, more: int
) -> None:
    lowest, dense = lowest_cost(group, fixed), dense_cost(group, fixed)
    assert total(group, spend(group, fixed, lowest), fixed) == lowest
    assert total(group, spend(group, fixed, dense + more), fixed) == dense


def test_spending_starts_from_one_setting_shared_by_all() -> None:
    group = [ladder_of(list(range(10, 1010, 10))) for _ in range(4)]
    assert spend(group, 0, 4 * 500) == [50] * 4
    knobs = spend(group, 0, 4 * 500 + 25)
    assert sorted(knob for knob in knobs if knob) == [50, 50, 51, 51]


def test_fine_steps_are_taken_again_and_again_where_the_next_coarse_one_is_too_dear() -> None:
    group = [ladder_of([0, 50]), ladder_of(list(range(40))), ladder_of(list(range(0, 80, 2)))]
    assert total(group, spend(group, 0, 97), 0) == 97


def test_coarse_steps_go_first_where_taking_turns_would_waste_the_budget() -> None:
    fine, coarse = ladder_of([0, 30]), ladder_of([0, 100])
    assert total([fine, coarse], spend([fine, coarse], 0, 100), 0) == 100


@STEADY
@given(ladders(), st.integers(-5, 500))
def test_the_highest_knob_within_a_limit_is_that_of_a_search_through_all(ladder: Ladder, limit: int) -> None:
    affordable = [rung for rung, knob in enumerate(ladder.knobs) if ladder.cost(knob) <= limit]
    assert highest_within(ladder.knobs, ladder.cost, limit) == max(affordable, default=-1)
