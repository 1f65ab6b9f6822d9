"""Pace: in inference, where what is made ahead is kept, a layer takes the order that takes the least time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import understudy as us
from understudy.counting.trace import trace
from understudy.layers import Conv, Execution, Layer, Linear
from understudy.layers.geometry import Geometry
from understudy.layers.pace import OVERHEAD, pace_of, works
from understudy.planning.pacing import site_nanoseconds, stand_in_nanoseconds
from understudy.transforms import get_transform, known_transforms

SQUARE = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")


@pytest.mark.parametrize("name", [name for name in known_transforms() if name != "dense"])
def test_every_order_has_a_time_that_rises_with_the_vectors(name: str) -> None:
    transform = get_transform(name)
    knobs = transform.knobs(48, 48)
    knob = knobs[len(knobs) // 2]
    for order in transform.all_orders(48, 48, knob):
        made = works(transform, 48, 48, knob, order)
        assert 0 < pace_of(made, 1) < pace_of(made, 1000), order
        assert sum(work.mult_adds for work in made) <= order.per_vector, order


@pytest.mark.parametrize(
    ("name", "knob", "positions", "order"),
    [
        ("low_rank", 4, 1, "formed"),  # two calls take longer than one
        ("low_rank", 4, 4096, "V,U"),
        ("low_rank", 31, 4096, "formed"),
        ("acdc", 2, 4096, "formed"),  # fewer mult-adds, but those of a Fourier transform
        ("low_rank_sparse", 8, 4096, "formed"),
        ("pivoted", 8, 100_000, "V,U"),
    ],
)
def test_structure_runs_where_it_pays(name: str, knob: int, positions: int, order: str) -> None:
    width = 64
    layer = Linear(get_transform(name)(width, width, knob)).eval()
    assert layer.order_in_inference(positions).name == order


def test_a_wide_layer_keeps_its_structure_and_training_counts_mult_adds() -> None:
    layer = Conv(get_transform("shuffle")(640, 640, 4), Geometry.pointwise(2))
    assert layer.order_in_inference(512).name == "B1,P,B2"
    small: Layer = Linear(get_transform("low_rank")(64, 64, 4))
    assert small.execution.choose(small.transform, 1).name == "V,U"
    assert small.order_in_inference(0).name == "formed"
    small.execution = Execution(order="V,U")
    assert small.order_in_inference(1).name == "V,U"


def test_what_runs_formed_has_the_same_outputs_and_is_counted_as_without_anything_kept() -> None:
    layer = Conv(get_transform("low_rank")(16 * 9, 16, 12), SQUARE).eval()
    x = torch.randn(1, 16, 4, 4)
    with torch.no_grad():
        kept = layer(x)
    assert len(layer._kept) == 1
    torch.testing.assert_close(kept, layer(x).detach(), atol=1e-5, rtol=1e-5)
    assert sum(trace(layer, x).mult_adds.values()) == 16 * 12 * (16 * 9 + 16)


def tapped(way: Any, channels: int) -> Any:
    model = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, 4, 1))
    plan = us.plan(model, "low_rank", knob=channels // 4, spatial=way, include=["0"])
    return us.substitute(model, plan, init="fresh").eval()[0]  # type: ignore[index]


@torch.no_grad()
@pytest.mark.parametrize("way", ["inside", "separable"])
def test_a_small_kernel_with_taps_runs_whole_and_a_wide_one_in_its_parts(way: str) -> None:
    small, wide = tapped(way, 16), tapped(way, 512)
    x = torch.randn(1, 16, 8, 8)
    for _ in range(2):
        torch.testing.assert_close(small(x), small.merged()(x), rtol=1e-4, atol=1e-5)
        small.depthwise.weight.mul_(2)  # what is kept follows the taps too
    assert len(small._all_steps(x)) == 1
    assert len(wide._all_steps(torch.randn(8, 512, 8, 8))) > 1
    set_by_hand = dataclasses.replace(small.execution, inference=small.transform.legal_orders[1].name)
    small.execution = set_by_hand
    assert len(small._all_steps(x)) > 1
    small(x)
    assert not len(small._kept)


def test_time_is_modelled_as_layers_with_taps_run() -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 4, 1))
    for way in ("inside", "separable"):
        [site] = us.sites(model, (1, 16, 8, 8), include=["0"]).chosen
        modelled = stand_in_nanoseconds(site, us.get_transform("low_rank"), way, (16, 16), 4)
        assert modelled == OVERHEAD + site_nanoseconds(site)
