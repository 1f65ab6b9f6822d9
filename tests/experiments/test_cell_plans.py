"""Planning: what every cell costs, and what cannot be reached, before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import understudy as us
from understudy.experiments import Grid, GridError, load_grid, make_grid, new_result, plan_cells

UNREACHABLE: dict[str, Any] = {
    "recipe": "demo",
    "students": [{"transforms": ["low_rank", "shuffle"], "params": ["1k", "30k"]}],
    "baselines": [{"narrow": ["30k", 60]}],
}


def grid(**table: Any) -> Grid:
    return make_grid("test", {"recipe": "demo", **table})


def test_a_planned_cell_costs_what_its_substituted_network_does() -> None:
    made = grid(
        students=[{"transforms": "all", "params": "30k"}, {"transforms": ["dense"], "scale": 1}],
        baselines=[{"narrow": "30k"}],
    )
    example = torch.zeros(1, 3, 8, 8)
    for item in plan_cells(made):
        recipe = item.cell.recipe
        network = us.create_model(recipe.network)
        if item.plan is not None:
            network = us.substitute(network, item.plan, init="fresh")
        counted = us.cost(network, example)
        assert item.costs is not None
        assert (item.plan is None) == (item.cell.role != "student")
        assert item.costs.params == counted.params
        assert item.costs.mult_adds == counted.mult_adds
        assert item.costs.ideal_mult_adds == counted.ideal_mult_adds


def test_a_cell_of_patterns_is_planned_with_a_transform_for_each_and_says_so() -> None:
    patterns = {"*.conv1": "low_rank", "*.conv2": "shuffle"}
    item = plan_cells(grid(students=[{"transforms": patterns, "params": "60k"}]))[1]
    assert item.plan is not None
    assert set(item.plan.transforms) == {"low_rank", "shuffle"}
    result = new_result("test", item)
    assert (result.structure, result.transforms) == (
        "*.conv1=low_rank, *.conv2=shuffle",
        ("low_rank", "shuffle"),
    )


def test_all_unreachable_cells_are_named_with_what_is_reachable_before_anything_trains() -> None:
    with pytest.raises(GridError) as refused:
        plan_cells(make_grid("test", UNREACHABLE))
    message = str(refused.value)
    assert message.startswith("3 of 7 cells cannot be reached")
    assert "low_rank-1k-at-crs-seed-0: low_rank on WideResNet: 1.00k parameters is below" in message
    assert "shuffle-1k-at-crs-seed-0: " in message
    assert "6,794" in message
    assert "narrow-60-seed-0: 60 parameters are below what a narrower wrn_10_2 reaches" in message
    assert "unreachable = 'skip'" in message


def test_a_grid_may_go_on_without_what_is_unreachable() -> None:
    planned = plan_cells(make_grid("test", UNREACHABLE | {"unreachable": "skip"}))
    missed = {item.cell.name for item in planned if item.costs is None}
    assert missed == {"low_rank-1k-at-crs-seed-0", "shuffle-1k-at-crs-seed-0", "narrow-60-seed-0"}
    assert all(item.reason for item in planned if item.costs is None)
    assert not any(item.reason for item in planned if item.costs)


def test_an_illegal_knob_is_unreachable_too() -> None:
    with pytest.raises(GridError, match=r"1 of 3 .*low_rank-knob-9999-at-crs-seed-0: .*rank 9999 is not in"):
        plan_cells(grid(students=[{"transforms": "low_rank", "knob": [1, 9999]}]))


def test_seeds_and_ablations_of_one_network_cost_the_same() -> None:
    planned = plan_cells(
        grid(students=[{"transforms": "hashed", "ratio": 0.1, "seeds": [0, 1], "crs": [True, False]}])
    )
    costs = [item.costs for item in planned if item.cell.role == "student"]
    assert len(costs) == 4
    assert all(cost == costs[0] for cost in costs)


def test_the_largest_grid_of_the_paper_meets_its_budgets() -> None:
    planned = plan_cells(load_grid("paper_wrn_28_10"))
    assert sum(item.costs is not None for item in planned) >= 58
    for item in planned:
        if item.costs and item.cell.budget:
            count = item.cell.budget.amount
            assert 0.98 * count < item.costs.params <= count, item.cell.name
