"""A budget of time, ranks that are multiples, and what is said of a student that will be slower."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import understudy as us
from understudy.planning import planner
from understudy.planning.budget import Budget
from understudy.planning.pacing import stand_in_nanoseconds


@pytest.fixture(autouse=True)
def modelled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "can_be_measured", lambda _: False)


def network(width: int = 512) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(3)), nn.Linear(width, 4))


@pytest.mark.parametrize("latency", [0.5, "50%"])
def test_a_share_of_the_time_is_met_and_more_of_it_allows_more(latency: float | str) -> None:
    half = us.plan(network(), "low_rank", latency=latency, example=(256, 512))
    most = us.plan(network(), "low_rank", latency=0.8, example=(256, 512))
    assert str(half.request.budget) == "at most 50 % of the time, modelled"
    assert half.request.budget is not None
    assert half.request.budget.label == "at most 50 % of the time"  # which is in names of files
    assert half.params < most.params < half.dense_params
    assert us.Plan.from_json(half.to_json()) == half


def test_a_time_by_itself_is_met_or_the_least_is_named() -> None:
    made = us.plan(network(), "low_rank", latency="100ms", example=(256, 512))
    assert made.params == made.dense_params
    assert made.request.budget == Budget("milliseconds", 100.0)
    assert str(Budget.of(latency="250 us")) == "at most 250 µs, modelled"
    with pytest.raises(us.BudgetError, match=r"1 µs is below what is reachable: \d+ µs, modelled, which is"):
        us.plan(network(), "low_rank", latency="1us", example=(256, 512))
    with pytest.raises(us.BudgetError, match="is below what is reachable"):
        us.plan(network(), "hashed", latency=0.5, example=(256, 512))  # it always runs formed


@pytest.mark.parametrize(
    ("latency", "match"),
    [
        (2, 'latency 2 is not in 0..1: it is a share of the network\'s time; "5ms" is a time'),
        ("soon", "latency 'soon' is not a number"),
        ("-3ms", "-3.0 milliseconds is not above 0"),
    ],
)
def test_what_is_no_time_is_refused(latency: float | str, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        us.plan(network(), "low_rank", latency=latency, example=(1, 512))


def test_a_budget_of_time_needs_an_example() -> None:
    with pytest.raises(ValueError, match="a budget of time needs an example input"):
        us.plan(network(), "low_rank", latency=0.5)


def test_ranks_are_multiples_where_the_budget_allows_it_and_the_plan_says_so() -> None:
    made = us.plan(network(), "low_rank", ratio=0.3, multiple=8)
    ranks = [layer.spec.knob for layer in made if layer.spec]
    assert ranks
    assert all(rank % 8 == 0 for rank in ranks)
    assert made.params <= 0.3 * made.dense_params
    assert "ranks above 8 are multiples of 8" in made.remarks
    small = us.plan(network(64), "low_rank", ratio=0.2, multiple=64)
    assert "no rank is rounded to a multiple of 64: none of 3 reaches it" in small.remarks
    by_number = us.plan(network(64), "low_rank", knob=12, multiple=8).remarks
    assert by_number == (
        "not all ranks are multiples of 8: a knob that is asked for by number is taken as it is",
    )
    scaled = us.plan(network(), "low_rank", scale=0.1, multiple=16)
    assert {layer.spec.knob for layer in scaled if layer.spec} == {48}
    groups = us.plan(network(), "shuffle", ratio=0.3, multiple=3)  # groups are no ranks
    assert any(layer.spec and layer.spec.knob % 3 for layer in groups)
    assert not groups.remarks
    assert not us.plan(network(), "hashed", ratio=0.5, multiple=8).remarks  # nor are numbers of weights
    some = us.plan(network(), {"0": "low_rank", "1": "hashed"}, ratio=0.5, multiple=16, include=["0", "1"])
    assert "ranks above 16 are multiples of 16" in some.remarks
    assert us.Plan.from_json(made.to_json()).request.multiple == 8
    with pytest.raises(ValueError, match="multiple 0 is not a whole number of at least 1"):
        us.plan(network(), "low_rank", ratio=0.3, multiple=0)


def test_a_student_that_will_be_slower_says_so_and_a_quicker_one_does_not() -> None:
    slow = us.plan(network(32), "low_rank", ratio=0.5, example=(1, 32))
    assert any(remark.startswith("smaller, but slower: for this example") for remark in slow.remarks)
    same = us.plan(us.create_model("wrn_16_2"), "hashed", ratio=0.5, example=(1, 3, 32, 32))
    assert any(
        remark.startswith("about as quick as the original, perhaps a little slower: ")
        for remark in same.remarks
    )
    quick = us.plan(network(), "low_rank", ratio=0.2, example=(256, 512))
    assert not any("slower" in remark or "about as quick" in remark for remark in quick.remarks)


def test_a_budget_of_time_counts_all_three_parts_of_what_is_taken_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # with many, calls are most of the time
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3, stride=2), nn.Conv2d(64, 8, 1))
    example = torch.zeros(8, 3, 32, 32)
    survey = us.sites(model, example=example)
    (site,) = [one for one in survey.chosen if one.path == "1"]
    made = us.get_transform("low_rank")
    times = [stand_in_nanoseconds(site, made, "inside", (64, 64), knob) for knob in (4, 16, 64)]
    assert times == sorted(set(times))
    plan = us.plan(model, "low_rank", latency=0.5, example=example, spatial="inside")
    assert sum(layer.params for layer in plan) < survey.params


def test_a_budget_of_time_finds_ranks_that_are_multiples() -> None:
    plan = us.plan(network(768), "pivoted", latency=0.6, example=(512, 768), multiple=8)
    knobs = [layer.spec.knob for layer in plan if layer.spec is not None]
    assert knobs
    assert all(knob % 8 == 0 for knob in knobs)
