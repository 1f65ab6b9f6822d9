"""Seeds are taken together, and an effect is a difference between cells that are otherwise the same."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import errors, result, size, sweep, teacher

from understudy.report.read.groups import Problem, Statistic, ablations, group_results, problems_of
from understudy.report.read.pareto import front
from understudy.report.read.summary import smallest_close, tiles
from understudy.results import Costs, Result

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40)


def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether `one` is nowhere worse than `other` and somewhere better; smaller is better."""
    return one[0] <= other[0] and one[1] <= other[1] and one != other


@given(points)
def test_nothing_dominates_the_front_and_something_on_it_each_other_point(
    cloud: list[tuple[int, int]],
) -> None:
    chosen = front(cloud)
    assert len(set(chosen)) == len(chosen)
    for index in chosen:
        assert not any(dominates(other, cloud[index]) for other in cloud)
    for index in set(range(len(cloud))) - set(chosen):
        assert any(dominates(cloud[other], cloud[index]) for other in chosen)


def test_the_front_goes_from_cheap_to_dear() -> None:
    assert front([(3, 1), (1, 3), (2, 2), (2, 5)]) == [1, 2, 0]


def seeds(*values: float) -> list[Result]:
    return [result(f"cell-{seed}", seed=seed, errors=errors(value)) for seed, value in enumerate(values)]


def test_seeds_are_aggregated_with_the_sample_deviation() -> None:
    (group,) = group_results(seeds(4.9, 5.1, 5.3))
    assert group.error is not None
    assert group.error.text() == "5.1 ± 0.2 (n=3)"
    assert group.error.deviation == statistics.stdev([4.9, 5.1, 5.3])


def test_one_seed_has_no_deviation() -> None:
    (group,) = group_results(seeds(4.9))
    assert group.error is not None
    assert group.error.text() == "4.9"


def test_a_failed_seed_is_counted_in_the_status_not_in_the_error() -> None:
    (group,) = group_results([*seeds(4.9, 5.1), result("lost", seed=2, state="diverged")])
    assert group.error is not None
    assert group.error.n == 2
    assert group.states == "2 finished, 1 diverged"


def test_cells_of_other_settings_are_not_taken_together() -> None:
    first = result("first", seed=0)
    second = result("second", seed=1, settings={"epochs": 24})
    elsewhere = result("elsewhere", seed=2, indifferent={"teacher": "another/run", "workers": 4})
    groups = group_results([first, second, elsewhere])
    assert [[one.name for one in group.results] for group in groups] == [["first", "elsewhere"], ["second"]]


def test_a_sign_is_a_true_minus() -> None:
    assert Statistic(-0.25, None, 1).text(2, sign=True) == "−0.25"
    assert Statistic(0.25, None, 1).text(2, sign=True) == "+0.25"


def pair(name: str, attention: float, decay: str, error: float, seed: int = 0, **changes: Any) -> Result:
    changes = {"errors": errors(error)} | changes
    return result(name, attention=attention, decay=decay, seed=seed, **changes)


def test_an_ablation_is_the_difference_of_matched_results() -> None:
    rows = ablations(
        [
            pair("on-0", 10.0, "crs", 4.0),
            pair("on-1", 10.0, "crs", 4.4, seed=1),
            pair("off-0", 0.0, "crs", 5.0),
            pair("off-1", 0.0, "crs", 5.8, seed=1),
            pair("plain-0", 10.0, "none", 4.1),
        ]
    )
    by_attention, by_decay = rows
    assert (by_attention.factor, by_attention.setting) == ("attention transfer", "CRS")
    assert by_attention.difference is not None
    assert by_attention.difference.text(1, sign=True) == "−1.2 ± 0.3 (n=2)"
    assert (by_decay.factor, by_decay.setting) == ("CRS decay", "AT 10")
    assert by_decay.difference is not None
    assert by_decay.difference.mean == pytest.approx(-0.1)
    assert by_decay.difference.n == 1  # only seed 0 is on both sides


def test_a_partner_that_diverged_is_told() -> None:
    off = result("off", state="diverged", attention=0.0)
    (row,) = ablations([pair("on", 10.0, "crs", 4.0), off])
    assert row.difference is None
    assert row.without is None
    assert row.with_ is not None
    assert row.note == "diverged without, seed 0"


def test_two_strengths_of_attention_are_compared_apart() -> None:
    cells = [pair("weak", 10.0, "crs", 4.0), pair("strong", 1000.0, "crs", 3.0), pair("off", 0.0, "crs", 5.0)]
    rows = ablations(cells)
    assert [(row.setting, row.difference and row.difference.mean) for row in rows] == [
        ("CRS, β 10", -1.0),
        ("CRS, β 1000", -2.0),
    ]


def test_cells_that_differ_in_more_than_the_factor_do_not_match() -> None:
    longer = result("on", settings={"epochs": 24})
    assert ablations([longer, pair("off", 0.0, "crs", 5.0)]) == []


def test_a_smaller_baseline_belongs_to_the_network_it_is_a_smaller_form_of() -> None:
    dense: dict[str, Any] = {"role": "baseline", "data": "cifar10", "structure": "", "teacher": ""}
    problems = problems_of(
        [
            teacher("wrn_28_10", "cifar10"),
            teacher("darts", "cifar10"),
            result("narrow", network="wrn_28_2.5", **dense),
            result("shallow", network="wrn_10_4.5", **dense),
            result("thin", network="darts_9", **dense),
            result("other", network="resnet20", **dense),
        ]
    )
    assert problems["narrow"] == problems["shallow"] == Problem("wrn_28_10", "cifar10")
    assert problems["thin"] == Problem("darts", "cifar10")
    assert problems["other"] == Problem("resnet20", "cifar10")


def test_a_baseline_that_says_what_it_is_a_form_of_is_not_guessed_at() -> None:
    dense: dict[str, Any] = {"role": "baseline", "structure": "", "teacher": "", "network": "wrn_10_1.5"}
    results = [teacher("wrn_10_2"), teacher("wrn_16_2"), result("shallow", form_of="wrn_16_2", **dense)]
    assert problems_of(results)["shallow"] == Problem("wrn_16_2", "digits")
    assert problems_of([*results[:2], result("before", **dense)])["before"] == Problem("wrn_10_2", "digits")


def test_tiles_name_the_best_and_the_smallest_that_is_close() -> None:
    groups = group_results(
        [
            teacher(id="id-teacher-seed-0"),
            result("good", errors=errors(2.3)),
            result("close", budget=size("5k"), costs=Costs(5_000, 9, 9, 9), errors=errors(3.1)),
            result("tiny", budget=size("2k"), costs=Costs(2_000, 9, 9, 9), errors=errors(9.0)),
        ]
    )
    smallest = smallest_close(groups, groups[0].problem)
    assert smallest is not None
    assert smallest.first.name == "close"
    made = tiles(groups, groups[0].problem)
    assert [tile.value.replace("\N{NO-BREAK SPACE}", " ") for tile in made] == [
        "2.30 %",
        "5.00k",
        "2.20 %",
        "4 of 4",
    ]
    assert made[1].note == "1.6 % of the teacher, low_rank 5k"


def test_without_a_teacher_nothing_is_close_to_it() -> None:
    groups = group_results([result("alone")])
    assert smallest_close(groups, groups[0].problem) is None
    assert [tile.label for tile in tiles(groups, groups[0].problem)] == ["Best substitute", "Cells finished"]


def test_the_synthetic_sweep_is_one_problem() -> None:
    assert {group.problem for group in group_results(sweep())} == {Problem("wrn_10_2", "digits")}


def test_a_baseline_with_attention_transfer_is_told_from_one_without() -> None:
    facts: dict[str, Any] = {"role": "baseline", "structure": "", "network": "wrn_10_0.5"}
    results = [result("with", **facts), result("without", **facts, attention=0.0)]
    assert [group.label for group in group_results(results)] == ["baseline 24k AT", "baseline 24k"]
    (row,) = ablations(results)
    assert (row.factor, row.label) == ("attention transfer", "baseline 24k, dense")
