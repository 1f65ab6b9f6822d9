"""Seeds are taken together, and an effect is a difference between cells that are otherwise the same."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import result, sweep, teacher

from understudy.report.read.cells import parse_cells
from understudy.report.read.groups import Statistic, Task, ablations, group_cells, tasks_of
from understudy.report.read.pareto import dominates, front
from understudy.report.read.summary import smallest_close, tiles

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=40)


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


def errors(*values: float) -> list[dict[str, object]]:
    return [
        result(f"cell-{seed}", seed=seed, error={"top1": value, "top5": 0.1, "test_images": 500})
        for seed, value in enumerate(values)
    ]


def test_seeds_are_aggregated_with_the_sample_deviation() -> None:
    (group,) = group_cells(parse_cells(errors(4.9, 5.1, 5.3)))
    assert group.error is not None
    assert group.error.text() == "5.1 ± 0.2 (n=3)"
    assert group.error.deviation == statistics.stdev([4.9, 5.1, 5.3])


def test_one_seed_has_no_deviation() -> None:
    (group,) = group_cells(parse_cells(errors(4.9)))
    assert group.error is not None
    assert group.error.text() == "4.9"


def test_a_failed_seed_is_counted_in_the_status_not_in_the_error() -> None:
    results = errors(4.9, 5.1, 5.3)
    results[2] |= {"status": "diverged", "error": None}
    (group,) = group_cells(parse_cells(results))
    assert group.error is not None
    assert group.error.n == 2
    assert group.status == "2 finished, 1 diverged"


def test_cells_of_other_settings_are_not_taken_together() -> None:
    first = result("first", seed=0)
    second = result("second", seed=1, recipe={"epochs": 24})
    elsewhere = result("elsewhere", seed=2, recipe={"teacher": "another/run", "name": "other"})
    groups = group_cells(parse_cells([first, second, elsewhere]))
    assert [[cell.name for cell in group.cells] for group in groups] == [["first", "elsewhere"], ["second"]]


def test_a_sign_is_a_true_minus() -> None:
    assert Statistic(-0.25, None, 1).text(2, sign=True) == "−0.25"
    assert Statistic(0.25, None, 1).text(2, sign=True) == "+0.25"


def pair(name: str, attention: float, decay: str, error: float, seed: int = 0) -> dict[str, object]:
    return result(name, attention=attention, decay=decay, seed=seed, error={"top1": error, "top5": 0.1})


def test_an_ablation_is_the_difference_of_matched_cells() -> None:
    rows = ablations(
        parse_cells(
            [
                pair("on-0", 10.0, "crs", 4.0),
                pair("on-1", 10.0, "crs", 4.4, seed=1),
                pair("off-0", 0.0, "crs", 5.0),
                pair("off-1", 0.0, "crs", 5.8, seed=1),
                pair("plain-0", 10.0, "none", 4.1),
            ]
        )
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
    off = pair("off", 0.0, "crs", 5.0) | {"status": "diverged", "error": None}
    (row,) = ablations(parse_cells([pair("on", 10.0, "crs", 4.0), off]))
    assert row.difference is None
    assert row.without is None
    assert row.with_ is not None
    assert row.note == "diverged without, seed 0"


def test_two_strengths_of_attention_are_compared_apart() -> None:
    cells = [pair("weak", 10.0, "crs", 4.0), pair("strong", 1000.0, "crs", 3.0), pair("off", 0.0, "crs", 5.0)]
    rows = ablations(parse_cells(cells))
    assert [(row.setting, row.difference and row.difference.mean) for row in rows] == [
        ("CRS, β 10", -1.0),
        ("CRS, β 1000", -2.0),
    ]


def test_cells_that_differ_in_more_than_the_factor_do_not_match() -> None:
    longer = result("on", recipe={"epochs": 24})
    assert ablations(parse_cells([longer, pair("off", 0.0, "crs", 5.0)])) == []


def test_a_narrow_baseline_belongs_to_the_network_it_narrows() -> None:
    cells = parse_cells(
        [
            teacher("wrn_28_10", "cifar10"),
            teacher("darts", "cifar10"),
            result("narrow", role="baseline", network="wrn_28_2.5", data="cifar10", transform="", teacher=""),
            result("thin", role="baseline", network="darts_9", data="cifar10", transform="", teacher=""),
            result("other", role="baseline", network="resnet20", data="cifar10", transform="", teacher=""),
        ]
    )
    tasks = tasks_of(cells)
    assert tasks["narrow"] == Task("wrn_28_10", "cifar10")
    assert tasks["thin"] == Task("darts", "cifar10")
    assert tasks["other"] == Task("resnet20", "cifar10")


def test_tiles_name_the_best_and_the_smallest_that_is_close() -> None:
    small = {"params": 5_000, "mult_adds": 9, "ideal_mult_adds": 9, "bytes": 9}
    results = [
        teacher(id="id-teacher-seed-0"),
        result("good", error={"top1": 2.3, "top5": 0.0}),
        result("close", budget="5k params", costs=small, error={"top1": 3.1, "top5": 0.0}),
        result("tiny", budget="2k params", costs=small | {"params": 2_000}, error={"top1": 9.0, "top5": 0.0}),
    ]
    groups = group_cells(parse_cells(results))
    smallest = smallest_close(groups, groups[0].task)
    assert smallest is not None
    assert smallest.first.name == "close"
    made = tiles(groups, groups[0].task)
    assert [tile.value.replace("\N{NO-BREAK SPACE}", " ") for tile in made] == [
        "2.30 %",
        "5.00k",
        "2.20 %",
        "4 of 4",
    ]
    assert made[1].note == "1.6 % of the teacher, low_rank 5k"


def test_without_a_teacher_nothing_is_close_to_it() -> None:
    groups = group_cells(parse_cells([result("alone")]))
    assert smallest_close(groups, groups[0].task) is None
    assert [tile.label for tile in tiles(groups, groups[0].task)] == ["Best substitute", "Cells finished"]


def test_the_synthetic_sweep_is_one_task() -> None:
    assert {group.task for group in group_cells(parse_cells(sweep()))} == {Task("wrn_10_2", "digits")}


def test_a_baseline_with_attention_transfer_is_told_from_one_without() -> None:
    facts = {"role": "baseline", "transform": "", "network": "wrn_10_0.5"}
    cells = parse_cells([result("with", **facts), result("without", **facts, attention=0.0)])
    assert [group.label for group in group_cells(cells)] == ["baseline 24k AT", "baseline 24k"]
    (row,) = ablations(cells)
    assert (row.factor, row.label) == ("attention transfer", "baseline 24k, dense")
