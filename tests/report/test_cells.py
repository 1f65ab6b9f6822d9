"""Results are checked when they are read, and whatever may be missing may be missing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from synthetic import result, unfinished

from understudy.report import parse_cells


def test_costs_as_traced_win_over_those_planned() -> None:
    costs = {"params": 7, "mult_adds": 8, "ideal_mult_adds": 9, "bytes": 10}
    (cell,) = parse_cells([result(costs=costs)])
    assert (cell.params, cell.mult_adds, cell.ideal_mult_adds, cell.bytes) == (7, 8, 9, 10)
    (cell,) = parse_cells([result(costs=None)])
    assert (cell.params, cell.bytes) == (23_990, None)


def test_cells_in_every_state_are_read() -> None:
    cells = parse_cells(unfinished())
    assert [cell.status for cell in cells] == ["diverged", "failed", "unreachable", "running", "waiting"]
    assert not any(cell.finished for cell in cells)
    assert cells[2].params is None


def test_only_what_names_a_cell_is_required() -> None:
    least = {"format": 1, "name": "a", "role": "student", "status": "running", "network": "wrn_10_2"}
    (cell,) = parse_cells([least])
    assert (cell.params, cell.top1, cell.curve, cell.attention, cell.machine) == (None, None, (), 0.0, "")


def test_numbers_of_a_diverged_run_are_unknown_not_nan() -> None:
    curve = [{"epoch": 0, "train_error": math.nan, "test_error": math.inf}]
    (cell,) = parse_cells([result(status="diverged", curve=curve, error={"top1": math.nan})])
    assert cell.top1 is None
    assert (cell.curve[0].train_error, cell.curve[0].test_error) == (None, None)


def test_an_exception_for_a_transform_is_no_crs() -> None:
    plain, excepted = parse_cells(
        [result("a"), result("b", recipe={"decay_overrides": ["hashed=none", "low_rank=none"]})]
    )
    assert plain.crs
    assert not excepted.crs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 2}, "format is 2, and this version reads format 1; a newer understudy wrote it"),
        ({"format": None}, "format is None"),
        ({"format": True}, "format is True"),
        ({"status": "done"}, "status is 'done', not one of finished, diverged"),
        ({"role": "judge"}, "role is 'judge', not one of teacher, student, baseline"),
        ({"network": None}, "network is missing"),
        ({"network": 7}, "network is 7, not text"),
        ({"error": 4.8}, "error is 4.8, not a mapping or null"),
        ({"error": {"top1": "low"}}, "top1 is 'low', not a number or null"),
        ({"costs": {"params": 1.5}}, "params is 1.5, not a whole number"),
        ({"costs": {"params": -1}}, "params is -1, not a whole number of at least 0"),
        ({"seed": True}, "seed is True, not a number"),
        ({"curve": "steep"}, "curve is 'steep', not a list"),
        ({"curve": [3]}, r"curve\[0\] is 3, not a mapping"),
    ],
)
def test_a_bad_result_is_named_and_explained(changes: dict[str, Any], message: str) -> None:
    bad = result("some-cell") | changes
    with pytest.raises(ValueError, match=f"result some-cell: .*{message}"):
        parse_cells([result("fine"), bad])


def test_a_result_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ValueError, match="result 0 is a list"):
        parse_cells([[]])  # type: ignore[list-item]


def test_two_results_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="result twice: two results have this name"):
        parse_cells([result("twice"), result("twice", seed=1)])
