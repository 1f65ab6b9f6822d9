"""nn.ConvTranspose: its map is a site, and taken apart it computes what it did."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import understudy as us
from site_kinds import assert_dense_stand_ins_change_nothing, assert_equal_outputs, take_the_whole_way
from snapshots import snapshot
from understudy.layers.opening import close_, opened
from understudy.layers.spread import TRANSPOSED, LoweredSpread, Spread, Transposed

NAMES = ["low_rank", "tensor_train", "hashed", "shuffle"]  # last stages of every kind


class Decoder(nn.Module):
    """From few pixels with many channels to many with few, and a grouped, a dilated and a volume's part."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 12, 4, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.grouped = nn.ConvTranspose2d(12, 8, (3, 2), stride=(1, 2), groups=2, bias=False)
        self.line = nn.ConvTranspose1d(8, 10, 3, padding=1, dilation=2)
        self.head = nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.up(self.stem(x), output_size=[17, 17])))
        x = torch.relu(self.grouped(x))
        logits: Tensor = self.head(self.line(x.flatten(2)).mean(-1))
        return logits


def decoder() -> Decoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Decoder().double().eval()


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def run(model: nn.Module) -> Tensor:
    logits: Tensor = model(images())
    return logits


@st.composite
def transposed(draw: st.DrawFn) -> Transposed:
    dims = draw(st.integers(1, 3))
    sizes = st.tuples(*(st.integers(1, 3) for _ in range(dims)))
    stride, dilation, kernel = draw(sizes), draw(sizes), draw(sizes)
    padding = draw(st.tuples(*(st.integers(0, 2) for _ in range(dims))))
    ceilings = [max(s, d) - 1 for s, d in zip(stride, dilation, strict=True)]
    extra = draw(st.tuples(*(st.integers(0, ceiling) for ceiling in ceilings)))
    groups = draw(st.sampled_from([1, 2]))
    return TRANSPOSED[dims - 1](
        2 * groups,
        3 * groups,
        kernel,
        stride,
        padding,
        extra,
        groups=groups,
        bias=draw(st.booleans()),
        dilation=dilation,
        dtype=torch.float64,
    )


@settings(deadline=None)
@given(transposed(), st.booleans())
def test_a_transposed_convolution_computes_the_same_when_open_as_a_stand_in_and_closed_again(
    layer: Transposed, batched: bool
) -> None:
    sides = (4, 3, 2)[: len(layer.kernel_size)]
    x = torch.randn(*((2,) if batched else ()), layer.in_channels, *sides, dtype=torch.float64)
    try:
        wanted = layer(x)
    except RuntimeError:  # nothing is left of so small an input after so much was cut
        return
    if not wanted.numel():
        return
    opening = opened(layer)
    assert isinstance(opening, Spread)
    torch.testing.assert_close(opening(x), wanted)
    torch.testing.assert_close(opening.weight, layer.weight)
    closed = close_(copy.deepcopy(opening))
    assert type(closed) is type(layer)
    torch.testing.assert_close(closed(x), wanted)
    torch.testing.assert_close(dict(closed.state_dict()), dict(layer.state_dict()))
    plan = us.plan(nn.Sequential(layer), "dense", knob=1, include=["*"])
    if plan.transforms:
        student = us.substitute(nn.Sequential(layer), plan)
        torch.testing.assert_close(student(x), wanted)
        torch.testing.assert_close(us.lower(student)(x), wanted)


def test_the_map_of_a_transposed_convolution_is_a_site_with_its_shape_and_cost() -> None:
    found = {site.path: site for site in us.sites(decoder(), images(1))}
    assert [path for path, site in found.items() if site.skip is None] == [
        "up.taps",
        "grouped.taps",
        "line.taps",
    ]
    up, grouped, line = (found[f"{name}.taps"] for name in ("up", "grouped", "line"))
    assert (up.kind, up.shape, up.params, up.mult_adds) == ("conv2d", "1×1 16 → 192", 3072, 64 * 3072)
    assert (grouped.groups, grouped.params, grouped.mult_adds) == (2, 12 * 4 * 6, 17 * 17 * 288)
    assert (line.kind, line.in_features, line.out_features) == ("conv1d", 8, 30)
    by_name = us.sites(decoder(), include=["up"])
    assert [site.path for site in by_name.chosen] == ["up.taps"]


@pytest.mark.parametrize("transform", NAMES)
def test_networks_with_transposed_convolutions_take_the_whole_way(transform: str, tmp_path: Path) -> None:
    student = take_the_whole_way(
        decoder(), images(), run, tmp_path, ["up", "grouped", "line"], transform, spatial="unfolded"
    )
    assert_equal_outputs(student, us.lower(student), run)


@pytest.mark.parametrize("spatial", ["separable", "unfolded", "inside"])
def test_a_stand_in_that_holds_the_whole_kernel_changes_nothing(spatial: Any) -> None:
    assert_dense_stand_ins_change_nothing(decoder(), run, ["up", "grouped", "line"])
    plan = us.plan(decoder(), "low_rank", ratio=0.9, spatial=spatial)
    assert {layer.way for layer in plan if layer.path.endswith("taps")} == {"pointwise"}


def test_compression_fits_what_it_gives_and_leaves_the_others_as_they_were() -> None:
    model = decoder()
    before = snapshot(model)
    done = us.compression(model, "low_rank", ratio=0.6, data=images(32), include=["up"])
    assert snapshot(model) == before
    up = done.student.get_submodule("up")
    assert isinstance(up, Spread)
    assert type(done.student.get_submodule("grouped")) is nn.ConvTranspose2d
    plain = us.substitute(model, done.plan)
    with torch.no_grad():
        errors = [(run(network) - run(model)).norm() for network in (done.student, plain)]
    assert errors[0] < errors[1]


def test_gradients_and_half_precision_pass_through() -> None:
    student = us.substitute(decoder(), us.plan(decoder(), "low_rank", ratio=0.5)).train()
    run(student).sum().backward()
    assert all(parameter.grad is not None for parameter in student.parameters())
    half = student.eval().to(torch.bfloat16)
    with torch.no_grad():
        assert half(images().bfloat16()).dtype == torch.bfloat16


def test_lowered_the_last_factor_is_the_kernel() -> None:
    student = us.substitute(decoder(), us.plan(decoder(), "low_rank", ratio=0.5, include=["up"]))
    up = us.lower(student).get_submodule("up")
    assert isinstance(up, LoweredSpread)
    assert [type(part) for part in up] == [nn.Conv2d, nn.ConvTranspose2d]


def test_a_student_with_transposed_convolutions_is_exported(tmp_path: Path) -> None:
    model = decoder().float()
    families = {"up": "low_rank", "*": "shuffle"}  # the last stage is the kernel, or is not
    student = us.substitute(model, us.plan(model, families, ratio=0.8))
    exported = us.export(student, tmp_path / "student.onnx", images().float())
    assert exported.error < 1e-5


class Doubled(nn.ConvTranspose2d):
    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        return 2 * super().forward(x, output_size)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Doubled(4, 4, 3), "Doubled computes in its own way"),
        (nn.ConvTranspose2d(4, 4, 3, groups=4), "already depthwise"),
        (nn.ConvTranspose2d(4, 4, 3, dtype=torch.complex64), "not floating point"),
        (nn.utils.parametrizations.spectral_norm(nn.ConvTranspose2d(4, 4, 3)), "its weight is computed from"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_stays_closed_is_passed_over_with_the_reason(module: nn.Module, words: str) -> None:
    (site,) = [site for site in us.sites(nn.Sequential(module, nn.Linear(4, 4))) if site.path.startswith("0")]
    assert words in (site.skip or "")


def test_a_shared_kernel_is_passed_over_and_an_input_of_another_shape_refused() -> None:
    one, other = nn.ConvTranspose2d(4, 4, 3), nn.ConvTranspose2d(4, 4, 3)
    other.weight = one.weight
    skips = [site.skip for site in us.sites(nn.Sequential(one, other, nn.Conv2d(4, 4, 3)))]
    assert skips[:2] == ["its weight is shared with 1", "its weight is shared with 0"]
    student = us.substitute(decoder(), us.plan(decoder(), "low_rank", ratio=0.5))
    with pytest.raises(
        ValueError, match=r"expected \(batch, 16, …, …\) or \(16, …, …\), got \(1, 15, 4, 4\)"
    ):
        student.get_submodule("up")(torch.zeros(1, 15, 4, 4))
