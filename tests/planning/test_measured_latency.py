"""A budget of time on this machine: the original is measured, here on a clock that is set by hand."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from understudy.layers import steps
from understudy.layers.opening import opened
from understudy.planning import planner, stopwatch, times
from understudy.planning.pacing import site_nanoseconds
from understudy.planning.planned_time import PlannedTime
from understudy.planning.stopwatch import Passed
from understudy.train.recipe import Recipe
from understudy.train.student import make_student_plan
from understudy.transforms import products

EXAMPLE = (512, 256)  # of so many rows that stand-ins run as two products
CALL, ENTRY = 10_000, 4  # nanoseconds of a product, and of each entry of its weight
REST = 200_000  # of all that is no product, each time


class Clock:
    """Goes on only where something is done."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def __deepcopy__(self, memo: object) -> Clock:
        return self  # a student's is the original's


class Resting(nn.Module):
    """What takes time and has no weight."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def forward(self, x: Tensor) -> Tensor:
        self.clock.now += REST
        return x.relu()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made, product = Clock(), F.linear

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        made.now += CALL + ENTRY * weight.numel()
        return product(x, weight, bias)

    monkeypatch.setattr(F, "linear", linear)
    monkeypatch.setattr(products, "products_lag", lambda: False)  # products are products on every machine
    monkeypatch.setattr(steps.AtRows, "packed", lambda self, _: self)  # and are those that take time here
    monkeypatch.setattr(stopwatch, "now", made)
    monkeypatch.setattr(times, "now", made)
    return made


def network(clock: Clock, width: int = 256) -> nn.Module:
    layers = ((nn.Linear(width, width), Resting(clock)) for _ in range(3))
    return nn.Sequential(*itertools.chain.from_iterable(layers), nn.Linear(width, 8))


def taken(clock: Clock, model: nn.Module) -> int:
    with torch.no_grad():
        model.eval()(torch.zeros(EXAMPLE))
        began = clock.now
        model(torch.zeros(EXAMPLE))
    return clock.now - began


def share_of(clock: Clock, model: nn.Module, made: us.Plan) -> float:
    return taken(clock, us.substitute(model, made, init="fresh")) / taken(clock, model)


@pytest.mark.parametrize("latency", [0.8, 0.65, "1.1ms"])
def test_a_student_takes_the_share_that_was_asked_for_of_what_the_original_takes_here(
    clock: Clock, latency: float | str
) -> None:
    model = network(clock)
    made = us.plan(model, "low_rank", latency=latency, example=EXAMPLE)
    site, rest = CALL + ENTRY * 256 * 256, 3 * REST + CALL + ENTRY * 8 * 256
    original = 3 * site + rest
    asked = latency if isinstance(latency, float) else 1.1e6 / original
    assert asked - 0.03 < share_of(clock, model, made) < asked + 0.03
    assert made.time is not None
    assert (made.time.original, made.time.rest, made.time.is_measured) == (original, rest, True)
    assert asked - 0.02 < made.time.student / original <= asked
    assert "% of the original's 1.43 ms, measured on this machine with" in str(made)
    assert f"{round(rest / 1000)} µs of both outside the layers that may be substituted" in str(made)


def test_a_share_below_what_is_not_substituted_and_the_calls_names_the_least(clock: Clock) -> None:
    with pytest.raises(us.BudgetError, match=r"which is .* % of the original's 1\.43 ms, measured") as error:
        us.plan(network(clock), "low_rank", latency=0.4, example=EXAMPLE)
    least, rest = error.value.lowest, 3 * REST + CALL + ENTRY * 8 * 256
    assert rest + 3 * 2 * CALL <= least < rest + 3 * (2 * CALL + ENTRY * 512) + 10
    told = str(error.value)
    assert "574 µs is below what is reachable: 684 µs, modelled" in told
    assert "618 µs of it lie outside the layers that may be substituted" in told
    assert "nanoseconds" not in told


def test_without_time_to_try_stand_ins_the_model_follows_the_original(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "_SECONDS", -1.0)
    made = us.plan(network(clock), "low_rank", latency=0.8, example=EXAMPLE)
    assert made.time is not None
    assert made.time.is_measured
    assert made.params < made.dense_params
    survey = us.sites(network(clock), EXAMPLE)
    passed = Passed(10**6, 10**5, {}, {})
    blind = times.MeasuredTimes(network(clock), passed, survey)
    assert blind.site(survey[0]) == site_nanoseconds(survey[0])
    low_rank = us.get_transform("low_rank")
    assert blind.stand_in(survey[0], low_rank, "pointwise", (256, 256), 8) > 0


def test_noise_does_not_make_a_cheaper_stand_in_slower_than_a_dearer_one(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "_best_of", lambda calls: [100, 90, 30, 40, 60, 110][: len(calls)])
    model = network(clock)
    survey = us.sites(model, EXAMPLE)
    given = {"0": torch.zeros(EXAMPLE, device="meta")}
    made = times.MeasuredTimes(model, Passed(10**6, 10**5, {"0": 10**5}, given), survey)
    low_rank = us.get_transform("low_rank")
    each = [
        made.stand_in(survey[0], low_rank, "pointwise", (256, 256), knob) for knob in (1, 14, 33, 65, 128)
    ]
    assert each == [30_000, 30_000, 40_000, 60_000, 110_000]
    assert 40_000 < made.stand_in(survey[0], low_rank, "pointwise", (256, 256), 48) < 60_000
    assert made.stand_in(survey[0], low_rank, "pointwise", (256, 256), 200) == 110_000  # formed as the last


def test_only_a_budget_of_time_of_a_network_with_weights_is_measured(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network(clock)
    before = us.plan(model, "low_rank", ratio=0.5, example=EXAMPLE)

    def measured(*_: object) -> Passed:
        raise AssertionError("nothing is to be measured")

    monkeypatch.setattr(planner, "time_pass", measured)
    again = us.plan(model, "low_rank", ratio=0.5, example=EXAMPLE)
    assert again.to_json() == before.to_json()
    assert "time" not in json.loads(again.to_json())
    modelled = us.plan(us.sites(model, EXAMPLE), "low_rank", latency=0.5)
    assert us.plan(model.to("meta"), "low_rank", latency=0.5, example=EXAMPLE).layers == modelled.layers
    assert modelled.time is not None
    assert not modelled.time.is_measured
    assert ", not measured; " in str(modelled)
    request = us.Request((("*", "low_rank"),), us.Budget("latency", 0.5))
    recipe = Recipe(network="wrn_10_1", request=request)  # the same whenever and wherever it goes on
    planned = make_student_plan(recipe, 10, torch.zeros(64, 3, 32, 32))
    assert planned is not None
    assert planned.time is not None
    assert not planned.time.is_measured


def test_the_measured_times_are_saved_with_the_plan_and_checked(clock: Clock) -> None:
    made = us.plan(network(clock), "low_rank", latency=0.8, example=EXAMPLE)
    text = made.to_json()
    assert us.Plan.from_json(text) == made
    content: dict[str, Any] = json.loads(text)
    content["time"]["rest"] = -1
    with pytest.raises(ValueError, match="rest is -1, below 0"):
        us.Plan.from_json(json.dumps(content))
    one = PlannedTime(5_300_000, 2_650_000, 1_200_000, is_measured=True, threads=1)
    assert str(one).startswith(
        "student 2.65 ms, modelled, 50.0 % of the original's 5.3 ms, measured on this machine with 1 thread; "
    )
    assert "modelled for 2 threads" in str(dataclasses.replace(one, is_measured=False, threads=2))


def test_hooks_cost_the_rest_nothing_and_fused_kernels_do() -> None:
    def split(plain: int, **best: int) -> Passed:
        return stopwatch._split(plain, collections.Counter({"": 600, **best}), {})

    assert split(1000, site=400) == Passed(1000, 600, {"site": 400}, {})
    assert split(960, site=400) == Passed(960, 560, {"site": 400}, {})
    assert split(500, site=400) == Passed(500, 600, {"site": 400}, {})
    assert split(2000, site=400) == Passed(1000, 600, {"site": 400}, {})  # the whole met more noise


@pytest.mark.usefixtures("clock")
def test_what_is_measured_is_left_as_it_was() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(8, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.drop = nn.Dropout(0.5)
            self.register_buffer("drawn", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            x = self.drop(self.inner(self.inner(x)) + torch.rand(1))
            y: Tensor = self.attention(x, x, x)[0]
            return y

    model = Twice().train()
    model.inner.eval()
    before, state = [part.training for part in model.modules()], torch.get_rng_state()
    network = opened(model)
    paths = ["inner", "attention.q_proj", "attention.out_proj"]
    passed = stopwatch.time_pass(model, network, (1, 4, 8), paths)
    assert [part.training for part in model.modules()] == before
    assert torch.equal(state, torch.get_rng_state())
    assert not any(
        part._forward_hooks or part._forward_pre_hooks for part in (*model.modules(), *network.modules())
    )
    assert passed.sites["inner"] == 2 * (CALL + ENTRY * 64)  # both calls
    assert passed.inputs["attention.q_proj"].shape == (1, 4, 8)
    assert not stopwatch.can_be_measured(model.to("meta"))
    assert not stopwatch.can_be_measured(nn.Sequential(nn.LazyLinear(4)))
    assert not stopwatch.can_be_measured(nn.ReLU())
