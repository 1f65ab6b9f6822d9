"""Taken inside: a depthwise convolution between the two factors of a structured one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from site_kinds import take_the_whole_way
from understudy.layers import Execution, InsideConv
from understudy.layers.geometry import Geometry
from understudy.layers.replacement import Replacement, Spec
from understudy.transforms import known_transforms
from understudy.transforms.two_factors import TwoFactors

FAMILIES = [one for one in known_transforms().values() if issubclass(one, TwoFactors)]
IN, OUT = 16, 24
GEOMETRIES = [
    Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros"),
    Geometry((3, 2), (2, 1), (2, 0), (1, 2), "reflect"),
    Geometry((5, 5), (1, 1), "same", (1, 1), "circular"),
    Geometry((1, 1), (2, 2), (0, 0), (1, 1), "zeros"),
    Geometry((3,), (2,), (1,), (1,), "zeros"),
]


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(family: type[TwoFactors], geometry: Geometry = GEOMETRIES[0], place: float = 0.5) -> InsideConv:
    knobs = family.knobs(IN, OUT)
    transform = family(IN, OUT, knobs[int(place * (len(knobs) - 1))], seed=3, dtype=torch.float64)
    return InsideConv(transform, geometry, values(OUT, seed=9))


def sample(geometry: Geometry) -> Tensor:
    return values(2, IN, *((9, 10) if geometry.dims == 2 else (14,)))


def test_low_rank_shuffle_and_the_block_families_have_two_factors() -> None:
    assert [family.name for family in FAMILIES] == ["low_rank", "shuffle", "btt", "blast"]


@pytest.mark.parametrize("order", ["auto", "formed"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_it_is_the_dense_convolution_with_its_weight_in_every_geometry(
    family: type[TwoFactors], order: str
) -> None:
    for geometry in GEOMETRIES:
        layer = build(family, geometry)
        layer.execution = Execution(order=order)
        x = sample(geometry)
        wanted = layer.merged()(x)
        torch.testing.assert_close(layer(x), wanted, rtol=1e-11, atol=1e-11)
        with torch.no_grad():
            torch.testing.assert_close(layer.eval()(x), wanted, rtol=1e-11, atol=1e-11)
            if geometry.dims == 2:
                last = layer(x.contiguous(memory_format=torch.channels_last))
                torch.testing.assert_close(last, wanted, rtol=1e-11, atol=1e-11)
                assert (
                    last.stride(1) == 1 or geometry.padding_mode == "circular"
                )  # which copies in PyTorch too
        torch.testing.assert_close(layer(x[0]), wanted[0], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_its_weight_is_second_times_taps_times_first(family: type[TwoFactors]) -> None:
    layer = build(family)
    first, *second = layer.transform.prepare(layer.transform.legal_orders[1].name)
    through = first.rows(torch.eye(IN, dtype=torch.float64)).T  # (width, in)
    wanted = torch.zeros_like(layer.weight)
    for place in range(9):
        scaled = layer.depthwise.weight.flatten(1)[:, place, None] * through
        out = scaled.T
        for stage in second:
            out = stage.rows(out)
        wanted.flatten(2)[:, :, place] = out.T
    torch.testing.assert_close(layer.weight, wanted)


def test_gradients_reach_every_parameter_alike_through_the_layer_and_through_its_weight() -> None:
    for family in FAMILIES:
        layer, x = build(family), sample(GEOMETRIES[0])
        by_layer = torch.autograd.grad(layer(x).square().sum(), list(layer.parameters()))
        out = layer.geometry.convolve(x, layer.weight, layer.bias)
        by_weight = torch.autograd.grad(out.square().sum(), list(layer.parameters()))
        for one, other in zip(by_layer, by_weight, strict=True):
            torch.testing.assert_close(one, other)
            assert bool((one != 0).all())


@pytest.mark.parametrize("change", ["taps", "factor"])
def test_what_is_kept_in_inference_follows_the_parameters(change: str) -> None:
    for order in ("auto", "formed"):
        layer, x = build(FAMILIES[0]).eval(), sample(GEOMETRIES[0])
        layer.execution = Execution(inference=order) if order == "formed" else Execution()
        with torch.no_grad():
            layer(x)
            (layer.depthwise.weight if change == "taps" else next(layer.transform.parameters())).mul_(2)
            torch.testing.assert_close(layer(x), layer.merged()(x))


class Small(nn.Module):
    """Convolutions of every kind that can be taken inside, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.strided = nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.point = nn.Conv2d(32, 24, 1, stride=2)
        self.over_time = nn.Conv1d(24, 24, 5, padding=2, stride=2)
        self.hidden = nn.Linear(24, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.point(torch.relu(self.norm(self.strided(torch.relu(self.stem(x))))))
        y: Tensor = self.head(torch.relu(self.hidden(self.over_time(x.flatten(2)).mean(dim=2))))
        return y


def small() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Small().double().eval()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_network_takes_the_whole_way(family: type[TwoFactors], tmp_path: Path) -> None:
    run: Callable[[nn.Module], Tensor] = lambda model: model(values(2, 3, 9, 9))  # noqa: E731
    student = take_the_whole_way(
        small(), values(2, 3, 9, 9), run, tmp_path, ["strided", "over_time"], family.name,
        spatial="inside",
    )  # fmt: skip
    layers = dict(us.stand_ins(student))
    assert {type(layer) for layer in layers.values()} == {InsideConv}
    assert {Replacement.of(path, layer).way for path, layer in layers.items()} == {"inside"}


def test_by_a_knob_it_is_as_published_and_point_kernels_are_inside_too(tmp_path: Path) -> None:
    plan = us.plan(small(), "shuffle", knob=2, example=values(2, 3, 9, 9), spatial="inside")
    assert {layer.path: layer.way for layer in plan} == {
        "strided": "inside", "point": "inside", "over_time": "inside", "hidden": "pointwise",
    }  # fmt: skip
    student = us.substitute(small(), plan)
    found = us.cost(student, values(2, 3, 9, 9))
    assert (found.params, found.mult_adds) == (plan.params, plan.mult_adds)
    us.save(student, tmp_path / "student")
    loaded = us.load(tmp_path / "student", small())
    assert torch.equal(loaded(values(2, 3, 9, 9)), student(values(2, 3, 9, 9)))


def test_fresh_weights_have_the_variance_of_those_they_stand_for() -> None:
    dense = nn.Conv2d(64, 64, 3, padding=1)
    for family in FAMILIES:
        network = nn.Sequential(copy.deepcopy(dense))
        plan = us.plan(network, family.name, ratio=0.3, spatial="inside", include=["0"])
        layer = us.substitute(network, plan, init="fresh")[0]  # type: ignore[index]
        assert isinstance(layer, InsideConv)
        assert float(layer.weight.detach().std()) == pytest.approx(
            float(dense.weight.detach().std()), rel=0.15
        )


@pytest.mark.parametrize("transform", ["hashed", "tucker", "dense"])
def test_a_transform_without_two_factors_is_refused_by_name(transform: str) -> None:
    words = (
        f"strided: {transform} cannot be taken inside: .* two factors, as low_rank, shuffle, btt, blast have"
    )
    with pytest.raises(ValueError, match=words):
        us.plan(small(), transform, ratio=0.9, spatial="inside")
    spec = Spec(transform, 1)
    with pytest.raises(ValueError, match="cannot be taken inside"):
        Replacement("strided", "conv2d", 16, 32, (3, 3), "inside", spec)


def test_a_transform_without_two_factors_may_stand_for_what_has_no_kernel() -> None:
    plan = us.plan(small(), {"Linear": "hashed", "*": "low_rank"}, ratio=0.3, spatial="inside")
    assert plan.transforms == ("low_rank", "hashed")
    assert (plan["hidden"].way, plan["strided"].way) == ("pointwise", "inside")


def test_a_comparison_says_which_cannot_be_taken_inside() -> None:
    made = us.compare(small(), ratio=0.5, spatial="inside")
    assert {"low_rank", "btt", "blast"} <= set(made.plans)
    assert "two factors" in made.refused["hashed"]


@pytest.mark.parametrize("name", ["low_rank", "btt"])
def test_groups_taken_inside_are_lowered_and_take_an_empty_batch(name: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3, groups=2), nn.Conv2d(16, 4, 3)).eval()
    x = torch.randn(2, 3, 9, 9)
    student = us.substitute(model, us.plan(model, name, scale=0.3, spatial="inside")).eval()
    with torch.no_grad():
        torch.testing.assert_close(us.lower(student)(x), student(x), rtol=1e-4, atol=1e-5)
        assert student(x[:0]).shape == (0, 4, 3, 3)
