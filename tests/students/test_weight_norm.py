"""Weight-normed layers: what they compute is a site like any other, and those left alone stay normed."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import is_parametrized

import understudy as us
from site_kinds import assert_equal_outputs
from snapshots import snapshot
from understudy.layers import Layer
from understudy.layers.spread import Spread

LAYERS = ["mixed", "inner", "grouped", "up"]


class Vocoder(nn.Module):
    """Weight-normed layers of every kind, normed over one axis or all, between two plain ones."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 12, 3)
        self.mixed = weight_norm(nn.Conv1d(12, 16, 3, padding=1))
        self.grouped = weight_norm(nn.Conv1d(16, 16, 5, padding=2, groups=2, bias=False), dim=2)
        self.up = weight_norm(nn.ConvTranspose1d(16, 10, 4, stride=2, padding=1))
        self.inner = weight_norm(nn.Linear(10, 14), dim=None)  # type: ignore[arg-type]  # as torch has it
        self.head = nn.Linear(14, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.mixed(self.stem(x)))
        x = torch.relu(self.up(x + self.grouped(x)))
        out: Tensor = self.head(torch.relu(self.inner(x.mT)))
        return out


def vocoder() -> Vocoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Vocoder().double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.4)
    return model


def sounds(count: int = 2) -> Tensor:
    return torch.randn(count, 2, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def run(model: nn.Module) -> Tensor:
    out: Tensor = model(sounds())
    return out


def test_weight_normed_layers_are_sites_whose_parameters_include_the_norms() -> None:
    model = vocoder()
    found = {site.path: site for site in us.sites(model, sounds(1))}
    assert [path for path, site in found.items() if site.skip is None] == [
        "mixed",
        "grouped",
        "up.taps",
        "inner",
    ]
    assert [found[path].type for path in ("mixed", "inner")] == ["Conv1d", "Linear"]
    assert found["mixed"].params == 16 * 12 * 3 + 16
    assert found["grouped"].params == 16 * 8 * 5 + 5
    assert found["up.taps"].params == 16 * 10 * 4 + 16
    assert found["inner"].params == 10 * 14 + 1
    for include in (LAYERS, ["mixed"]):
        plan = us.plan(model, "low_rank", ratio=0.9, include=include)
        assert us.Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("transform", ["low_rank", "hashed"])
@pytest.mark.parametrize("include", [LAYERS, ["mixed"], ["up"]], ids=" ".join)
def test_weight_normed_networks_take_the_whole_way(
    transform: str, include: list[str], tmp_path: Path
) -> None:
    model = vocoder()
    before = snapshot(model)
    plan = us.plan(model, transform, ratio=0.9, example=sounds(), include=include, spatial="unfolded")
    replaced = {layer.path.removesuffix(".taps") for layer in plan if layer.spec is not None}
    assert replaced
    student = us.substitute(model, plan)
    counted = us.cost(student, sounds())
    assert (plan.params, plan.mult_adds) == (counted.params, counted.mult_adds)
    assert plan.params == sum(parameter.numel() for parameter in student.parameters())
    assert us.cost(model, sounds()).mult_adds == plan.dense_mult_adds
    for name in LAYERS:
        layer = student.get_submodule(name)
        assert isinstance(layer, Layer | Spread) == (name in replaced)
        assert is_parametrized(layer) == (name not in replaced)
    merged = us.merge(student)
    assert not any(isinstance(module, Layer | Spread) for module in merged.modules())
    assert_equal_outputs(student, merged, run)
    us.save(student, tmp_path / "student.safetensors")
    assert_equal_outputs(student, us.load(tmp_path / "student.safetensors", model), run)
    assert_equal_outputs(student, us.substitute_(copy.deepcopy(model), plan), run)
    assert snapshot(model) == before


def test_a_stand_in_that_holds_the_whole_weight_changes_nothing() -> None:
    model = vocoder()
    plan = us.plan(model, "dense", knob=1, include=LAYERS, spatial="unfolded")
    assert_equal_outputs(us.substitute(model, plan), model, run)


def test_what_compression_leaves_alone_is_normed_as_before_and_within_the_budget() -> None:
    model = vocoder()
    before = snapshot(model)
    done = us.compression(model, "low_rank", ratio=0.8, data=sounds(32), include=LAYERS)
    assert snapshot(model) == before
    params = sum(parameter.numel() for parameter in done.student.parameters())
    assert params == done.plan.params
    dense = {layer.path.removesuffix(".taps") for layer in done.plan if layer.spec is None} & set(LAYERS)
    kept = {name for name in LAYERS if is_parametrized(done.student.get_submodule(name))}
    assert kept == dense


def test_a_layer_that_a_pass_fitted_and_left_dense_is_normed_again() -> None:
    model = vocoder()
    done = us.compression(model, "low_rank", ratio=0.9, data=sounds(64), include=LAYERS)
    kept = [name for name in LAYERS if is_parametrized(done.student.get_submodule(name))]
    assert kept
    for name in kept:
        theirs, ours = model.get_submodule(name), done.student.get_submodule(name)
        assert {key: tensor.shape for key, tensor in theirs.state_dict().items()} == {
            key: tensor.shape for key, tensor in ours.state_dict().items()
        }
    assert all(parameter.requires_grad for parameter in done.student.parameters())


def test_frozen_norms_make_frozen_stand_ins() -> None:
    model = vocoder()
    for parameter in model.mixed.parameters():
        parameter.requires_grad_(False)
    student = us.substitute(model, us.plan(model, "low_rank", ratio=0.8, include=["mixed", "inner"]))
    assert not any(parameter.requires_grad for parameter in student.get_submodule("mixed").parameters())
    assert all(parameter.requires_grad for parameter in student.get_submodule("inner").parameters())


def test_norms_that_are_shared_or_of_another_kind_are_passed_over_with_the_reason() -> None:
    one, other = weight_norm(nn.Linear(4, 4)), weight_norm(nn.Linear(4, 4))
    other.parametrizations.weight.original1 = one.parametrizations.weight.original1
    twice = spectral_norm(weight_norm(nn.Linear(4, 4)))
    found = us.sites(nn.Sequential(one, other, twice, nn.Linear(4, 4)))
    assert all("its weight is computed from" in (site.skip or "") for site in found[:3])
    assert [site.params for site in found] == [20, 20, 20, 16]
