"""A family for each layer, by what it loses in fact; and what else a plan of trained layers may ask."""

from __future__ import annotations

import pytest
import torch
from test_compress import error, trained, waves
from torch import nn

import understudy as us
from understudy.fitting.separate import separated
from understudy.planning import worth
from understudy.transforms.metric import Metric

__all__ = ["trained"]  # the fixture


def test_auto_holds_several_families_and_is_as_good_as_each_that_was_tried(trained: nn.Module) -> None:
    x, _ = waves(256, seed=1)
    done = us.compression(trained, "auto", ratio=0.3, data=x)
    assert done.plan.params <= 0.3 * done.plan.dense_params
    tried = [step for step in done.steps if step.name.startswith("planned with")]
    kept = [step for step in tried if step.kept][-1]
    assert len(tried) > 1
    assert kept.error == min(step.error for step in tried)
    unfolded = us.compress(trained, "low_rank", ratio=0.3, spatial="unfolded", data=x)
    assert error(trained, done.student) < error(trained, unfolded)


def test_auto_may_be_one_of_several_patterns(trained: nn.Module) -> None:
    x, _ = waves(64, seed=1)
    plan = us.plan(
        trained,
        {"second": "tucker", "*": "auto"},
        ratio=0.4,
        include=["first", "second", "hidden"],
        calibration=us.calibrate(trained, x),
    )
    spec = plan["second"].spec
    assert spec is None or spec.transform == "tucker"
    assert plan.params <= 0.4 * plan.dense_params


def test_auto_without_data_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="'auto' takes what loses least, which only data tell"):
        us.plan(us.create_model("wrn_10_1"), "auto", ratio=0.5)


def test_large_layers_are_tried_with_closed_forms_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "_WORK", 10**8)
    layers = [nn.Linear(256, 256), nn.Linear(256, 16), nn.Linear(16, 256), nn.Linear(256, 4)]
    model = nn.Sequential(*layers).eval()
    calibration = us.calibrate(model, torch.randn(16, 256), include=["0", "1", "2"])
    plan = us.plan(model, "auto", ratio=0.5, include=["0", "1", "2"], calibration=calibration)
    assert plan.remarks[-1] == "large layers, tried with the families of a closed form alone: 1"
    spec = plan["0"].spec
    assert spec is not None
    assert spec.transform == "pivoted"


@pytest.mark.parametrize("transform", ["low_rank", "auto"])
def test_a_kernel_that_is_a_sum_of_few_terms_is_taken_inside(transform: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(12, 16, 3, padding=1))
    u, v, taps = torch.randn(16, 5), torch.randn(5, 12), torch.randn(5, 9)
    with torch.no_grad():
        model[0].weight.copy_(torch.einsum("or,ri,ra->oia", u, v, taps).reshape(16, 12, 3, 3))  # type: ignore[operator]
    x = torch.randn(64, 12, 6, 6)
    plan = us.plan(
        model, transform, ratio=0.2, include=["0"], calibration=us.calibrate(model, x, include=["0"])
    )
    assert plan["0"].way == "inside"
    assert us.plan(model, "low_rank", ratio=0.2, include=["0"]).layers[0].way != "inside"  # without data
    if transform == "low_rank":
        done = us.compression(model, transform, ratio=0.2, include=["0"], data=x)
        assert done.steps[-1].error < 1e-3


def test_a_separable_kernel_is_fitted_in_the_metric() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(6, 4 * 9, dtype=torch.float64)
    x = torch.randn(500, 36, dtype=torch.float64) * torch.linspace(0.1, 2, 36)
    metric = Metric.of(x.T @ x / 500, torch.diag(torch.linspace(0.1, 3, 6, dtype=torch.float64)))
    parts = separated(matrix, (3, 3), metric)
    plain = separated(matrix, (3, 3), Metric(torch.eye(36, dtype=torch.float64)))
    made = (plain.pointwise[:, :, None] * plain.taps).flatten(1)
    assert parts.loss < 0.95 * float(metric.loss(made - matrix))
    worse = parts.pointwise + 0.1 * torch.randn(6, 4, dtype=torch.float64)
    grown = float(metric.loss((worse[:, :, None] * parts.taps).flatten(1) - matrix)) - parts.loss
    assert grown == pytest.approx(float(parts.metric.loss(worse - parts.pointwise)), rel=1e-3)


class Residual(nn.Module):
    """A layer without a bias whose output is added to its input: a later batch norm can mend its mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner, self.head = nn.Linear(16, 32), nn.Linear(32, 32, bias=False), nn.Linear(32, 4)
        self.norm = nn.BatchNorm1d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        logits: torch.Tensor = self.head(self.norm(x + self.inner(x)))
        return logits


def test_a_mean_that_no_layer_can_mend_is_mended_by_a_later_batch_norm() -> None:
    torch.manual_seed(0)
    model, x = Residual(), torch.randn(256, 16)
    model(x)  # statistics
    model.eval()
    done = us.compression(model, "low_rank", ratio=0.6, include=["inner"], data=x)
    names = [step.name for step in done.steps]
    assert "the same, means left to later batch norms" in names
    mean = done.student.get_submodule("norm").get_buffer("running_mean")
    assert not torch.equal(mean, model.norm.get_buffer("running_mean"))


@pytest.mark.parametrize("transform", ["low_rank", "pivoted", "low_rank_sparse"])
@pytest.mark.parametrize("size", ["90kB", 120_000])
def test_a_budget_of_bytes_is_one_of_the_file(size: int | str, transform: str) -> None:
    """What is saved beside the parameters, the places of pivots and entries, is in it."""
    model = us.create_model("wrn_10_1")
    plan = us.plan(model, transform, bytes=size)
    found = us.cost(us.substitute(model, plan), (1, 3, 32, 32)).bytes
    wanted = 90_000 if size == "90kB" else size
    assert 0.9 * int(wanted) < found <= int(wanted)


def test_bytes_below_reach_are_refused() -> None:
    with pytest.raises(us.BudgetError, match="below what is reachable"):
        us.plan(us.create_model("wrn_10_1"), "low_rank", bytes=100)
