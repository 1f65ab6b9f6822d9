"""Grouped convolutions: a structured matrix for every group, and yet one layer."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from site_kinds import assert_dense_stand_ins_change_nothing, take_the_whole_way
from understudy.layers import Conv, GroupedConv, InsideConv, SeparableConv
from understudy.layers.execution import Execution

GROUPED = ["block.3", "last"]


class Grouped(nn.Module):
    """A block as of a regnet, its 3×3 convolution in groups and with a batch norm behind; then a 1×1 one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.block = nn.Sequential(
            nn.Conv2d(16, 24, 1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1, groups=3, bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(),
        )
        self.last = nn.Conv2d(48, 32, 1, groups=2)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.last(self.block(self.stem(x)))).mean(dim=(2, 3)))
        return logits


def network(*, dtype: torch.dtype = torch.float64) -> Grouped:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Grouped().to(dtype).eval()


def images(count: int = 2, *, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(count, 3, 8, 8, dtype=dtype, generator=torch.Generator().manual_seed(1))


def logits(model: nn.Module) -> Tensor:
    out: Tensor = model(images())
    return out


def test_a_grouped_convolution_is_a_site_that_says_its_groups() -> None:
    found = {site.path: site for site in us.sites(network(), images())}
    site = found["block.3"]
    assert (site.groups, site.in_features, site.out_features) == (3, 24, 48)
    assert (site.shape, site.params) == ("3×3 24 → 48 in 3 groups", 48 * 8 * 9)
    assert site.mult_adds == 2 * 4 * 4 * site.params
    assert site.skip is None


@pytest.mark.parametrize(
    ("transform", "spatial"),
    [
        *(
            (name, way)
            for name in ("low_rank", "tucker", "hashed", "shuffle")
            for way in ("unfolded", "separable")
        ),
        *(("low_rank", "inside"), ("shuffle", "inside")),
    ],
)
def test_a_grouped_network_takes_the_whole_way(transform: str, spatial: str, tmp_path: Path) -> None:
    student = take_the_whole_way(network(), images(), logits, tmp_path, GROUPED, transform, spatial=spatial)
    layers = dict(us.stand_ins(student))
    part = {"separable": SeparableConv, "inside": InsideConv, "unfolded": Conv}[spatial]
    if "block.3" in layers:
        layer = layers["block.3"]
        assert isinstance(layer, GroupedConv)
        assert [type(inner) for inner in layer.parts] == [part] * 3
        assert len({inner.transform.seed for inner in layer.convs}) == 3


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv2d(6, 9, 3, stride=2, padding=1, groups=3),
        nn.Conv2d(6, 8, (3, 1), dilation=(2, 1), padding="same", padding_mode="circular", groups=2),
        nn.Conv2d(6, 4, 1, stride=2, groups=2, bias=False),
        nn.Conv1d(6, 9, 3, padding=1, groups=3),
    ],
    ids=str,
)
def test_dense_stand_ins_give_the_outputs_of_any_grouped_convolution(conv: nn.Module) -> None:
    model = nn.Sequential(conv).double()
    sides = (7, 7) if isinstance(conv, nn.Conv2d) else (7,)
    x = torch.randn(2, 6, *sides, dtype=torch.float64)
    student = assert_dense_stand_ins_change_nothing(model, lambda network: network(x), ["0"])
    assert_dense_stand_ins_change_nothing(model, lambda network: network(x[0]), ["0"])
    loss = [network(x).square().sum() for network in (model, student)]
    weight, bias = model.get_parameter("0.weight"), model[0].bias
    parts = [part for name, part in student.named_parameters() if name.endswith("transform.weight")]
    got = torch.autograd.grad(loss[1], parts)
    torch.testing.assert_close(
        torch.cat(got), torch.autograd.grad(loss[0], weight, retain_graph=True)[0].flatten(1)
    )
    if bias is not None:
        torch.testing.assert_close(student.get_submodule("0").bias, bias)


@pytest.mark.parametrize("spatial", ["unfolded", "separable"])
@pytest.mark.parametrize("transform", ["low_rank", "shuffle", "tensor_train"])
def test_every_order_gives_the_outputs_of_the_merged_layer(transform: str, spatial: Any) -> None:
    model = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, groups=2)).double()
    student = us.substitute(model, us.plan(model, transform, scale=0.5, include=["0"], spatial=spatial))
    layer = student.get_submodule("0")
    assert isinstance(layer, GroupedConv)
    x = torch.randn(2, 16, 5, 5, dtype=torch.float64)
    wanted = us.merge(student)(x)
    for order in layer.transform.legal_orders:
        layer.execution = Execution(order=order.name)
        torch.testing.assert_close(layer(x), wanted, rtol=1e-9, atol=1e-10)
        assert [part.execution.order for part in layer.convs] == [order.name] * 2


def test_fresh_groups_differ_and_have_the_variance_of_what_they_replace() -> None:
    model = nn.Sequential(nn.Conv2d(64, 64, 3, groups=2))
    plan = us.plan(model, "low_rank", knob=16, include=["0"], spatial="unfolded")
    layer = us.substitute(model, plan, init="fresh").get_submodule("0")
    assert isinstance(layer, GroupedConv)
    first, second = layer.weight.chunk(2)
    assert not torch.allclose(first, second)
    spread = [float(weight.detach().std()) for weight in (layer.weight, model.get_parameter("0.weight"))]
    assert 0.8 < spread[0] / spread[1] < 1.25


def test_a_grouped_network_is_compressed_with_a_metric_for_every_group(tmp_path: Path) -> None:
    model = network(dtype=torch.float32)
    data = images(48, dtype=torch.float32)
    seen = us.calibrate(model, data, include=GROUPED, positions=10_000)
    assert seen.layers["block.3"].covariance.shape == (3, 72, 72)
    with torch.no_grad():
        hidden = torch.relu(model.block[1](model.block[0](model.stem(data))))
    patches = nn.functional.unfold(hidden, 3, stride=2, padding=1).mT.reshape(-1, 3, 72).double()
    middle = patches[:, 1] - patches[:, 1].mean(0)
    torch.testing.assert_close(
        seen.layers["block.3"].covariance[1], middle.T @ middle / len(middle), rtol=1e-3, atol=1e-5
    )
    assert "block.3" in str(seen)
    seen.save(tmp_path / "seen.safetensors")
    loaded = us.Calibration.load(tmp_path / "seen.safetensors")
    assert len(loaded.layers["block.3"].metrics(is_centred=True)) == 3
    done = us.compression(model, ratio=0.6, data=data, include=GROUPED)
    assert {path for path, layer in us.stand_ins(done.student) if isinstance(layer, GroupedConv)} == set(
        GROUPED
    )
    plain, *fitted = [step.error for step in done.steps]
    assert min(fitted) < 0.8 * plain
    assert sum(parameter.numel() for parameter in done.student.parameters()) == done.plan.params


def test_a_separable_student_of_a_grouped_network_is_fitted_too() -> None:
    model = network(dtype=torch.float32)
    done = us.compression(
        model, ratio=0.6, data=images(48, dtype=torch.float32), include=GROUPED, spatial="separable"
    )
    assert min(step.error for step in done.steps[1:]) < done.steps[0].error


def test_a_plan_for_other_groups_is_refused() -> None:
    plan = us.plan(nn.Sequential(nn.Conv2d(8, 8, 3, groups=2)), "low_rank", knob=1, include=["0"])
    words = r"'0' is a conv2d with weight \(8, 4, 3, 3\), not a conv2d with \(8, 4, 3, 3\) in 2 groups"
    with pytest.raises(ValueError, match=words):
        us.substitute(nn.Sequential(nn.Conv2d(4, 8, 3)), plan)


def test_an_input_of_another_width_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, groups=2))
    student = us.substitute(model, us.plan(model, "low_rank", knob=1, include=["0"]))
    with pytest.raises(ValueError, match=r"expected \(batch, 8, …, …\) or \(8, …, …\), got \(2, 6, 5, 5\)"):
        student(torch.zeros(2, 6, 5, 5))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (0, "groups is 0, not a whole number"),
        ("2", "groups is '2'"),
        (3, "3 groups do not divide the channels"),
    ],
)
def test_groups_that_cannot_be_are_refused_when_a_plan_is_read(groups: Any, words: str) -> None:
    plan = us.plan(nn.Sequential(nn.Conv2d(8, 8, 3, groups=2)), "low_rank", knob=1, include=["0"])
    content = json.loads(plan.to_json())
    content["layers"][0]["groups"] = groups
    with pytest.raises(ValueError, match=words):
        us.Plan.from_json(json.dumps(content))


def test_a_grouped_stand_in_is_pickled_and_runs_in_bfloat16() -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=2))
    x = torch.randn(2, 16, 5, 5)
    for transform in ("low_rank", "shuffle"):
        student = us.substitute(
            model, us.plan(model, transform, scale=0.5, include=["0"], spatial="unfolded")
        )
        again = pickle.loads(pickle.dumps(student))
        torch.testing.assert_close(again(x), student(x))
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(student(x).float(), student.float()(x).float(), rtol=0.1, atol=0.1)
