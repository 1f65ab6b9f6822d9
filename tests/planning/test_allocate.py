"""Allocation: never above the budget, on the hull as good as any choice, and no step left that fits."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.planning.allocate import Choice, allocate
from understudy.planning.worth import spread

STEADY = settings(deadline=None, derandomize=True, max_examples=150)


@st.composite
def layers(draw: st.DrawFn) -> list[list[Choice]]:
    """Some layers, each with some choices and the dense one, which loses nothing."""
    made = []
    for _ in range(draw(st.integers(1, 4))):
        pairs = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 100)), min_size=1, max_size=5))
        made.append([Choice(50, 0.0), *(Choice(cost, loss, knob=k) for k, (cost, loss) in enumerate(pairs))])
    return made


def cost(chosen: list[Choice]) -> int:
    return sum(choice.cost for choice in chosen)


@STEADY
@given(layers(), st.data())
def test_a_budget_is_kept_and_no_better_choice_of_one_layer_fits(
    group: list[list[Choice]], data: st.DataObject
) -> None:
    lowest = sum(min(choice.cost for choice in options) for options in group)
    budget = data.draw(st.integers(lowest, 50 * len(group) + 5))
    chosen = allocate(group, budget)
    left = budget - cost(chosen)
    assert left >= 0
    for options, choice in zip(group, chosen, strict=True):
        assert choice in options
        better = [one for one in options if one.loss < choice.loss and one.cost <= choice.cost + left]
        assert not better


@STEADY
@given(layers(), st.data())
def test_the_loss_is_near_the_least_that_any_choice_has(
    group: list[list[Choice]], data: st.DataObject
) -> None:
    """The multiplier is optimal on the hull; off it, at most one step of one layer is missed."""
    lowest = sum(min(choice.cost for choice in options) for options in group)
    budget = data.draw(st.integers(lowest, 50 * len(group)))
    best = min(
        sum(choice.loss for choice in one) for one in itertools.product(*group) if cost(list(one)) <= budget
    )
    found = sum(choice.loss for choice in allocate(group, budget))
    widest = max(max(choice.loss for choice in options) for options in group)
    assert found <= best + widest


def test_a_few_of_many_knobs_hold_both_ends_and_rise() -> None:
    assert spread(range(1, 6), 24) == [1, 2, 3, 4, 5]
    many = spread(range(1, 10_001), 24)
    assert many == sorted(set(many))
    assert (many[0], many[-1]) == (1, 10_000)
    assert len(many) <= 25
