"""Layers: a stand-in computes what the dense layer with its weight computes, for every geometry and path."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import understudy as us
from representatives import TRANSFORMS
from understudy.counting.trace import trace
from understudy.layers import Conv, Execution, Layer, Linear, SeparableConv
from understudy.layers.geometry import Geometry
from understudy.transforms import Transform

PATHS = ("structured", "formed")
MODES = ("zeros", "reflect", "replicate", "circular")
IN, OUT = 8, 12
Sizes = tuple[int, ...]
# PyTorch says so of its own convolution, too.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def geometries(dims: int, mode: str) -> Iterator[Geometry]:
    """Kernel × stride × padding × dilation, those that PyTorch allows."""
    kernels: tuple[Sizes, ...] = ((1, 1), (3, 3), (3, 1), (2, 5)) if dims == 2 else ((1,), (3,), (4,))
    strides: tuple[Sizes, ...] = ((1, 1), (2, 2), (2, 1)) if dims == 2 else ((1,), (2,))
    paddings: tuple[Sizes | str, ...] = ((0, 0), (1, 1), (1, 2)) if dims == 2 else ((0,), (2,))
    dilations: tuple[Sizes, ...] = ((1, 1), (2, 2), (1, 2)) if dims == 2 else ((1,), (3,))
    for kernel, stride, padding, dilation in itertools.product(
        kernels, strides, (*paddings, "same", "valid"), dilations
    ):
        if padding != "same" or max(stride) == 1:
            yield Geometry(kernel, stride, padding, dilation, mode)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sample(dims: int, channels: int = IN) -> Tensor:
    return values(2, channels, *((10, 11) if dims == 2 else (14,)))


def build(transform: type[Transform], in_features: int) -> Transform:
    knobs = transform.knobs(in_features, OUT)
    return transform(in_features, OUT, knobs[len(knobs) // 2], seed=3, dtype=torch.float64)


L = TypeVar("L", bound=Layer)


def running(path: str, layer: L) -> L:
    """The layer made to run its matrix, or the first of its other orders where it has one."""
    orders = [order.name for order in layer.transform.legal_orders]
    layer.execution = Execution(order=orders[:2][0 if path == "formed" else -1])
    return layer


def dense_like(layer: Layer, geometry: Geometry) -> nn.Module:
    """PyTorch's own convolution with the layer's weight."""
    kind: Any = nn.Conv1d if geometry.dims == 1 else nn.Conv2d
    dense: nn.Module = kind(
        layer.weight.shape[1],
        OUT,
        geometry.kernel,
        stride=geometry.stride,
        padding=geometry.padding,
        dilation=geometry.dilation,
        padding_mode=geometry.padding_mode,
        dtype=torch.float64,
    )
    with torch.no_grad():
        dense.get_parameter("weight").copy_(layer.weight)
        dense.get_parameter("bias").copy_(values(OUT, seed=9))
    return dense


def assert_same(got: Tensor, wanted: Tensor, what: object) -> None:
    assert got.shape == wanted.shape, f"{what}: {tuple(got.shape)} is not {tuple(wanted.shape)}"
    error, size = float((got - wanted).detach().abs().max()), float(wanted.detach().abs().max())
    assert error <= 1e-12 * size, f"{what}: off by {error:.1e} of {size:.1e}"


# ---- convolutions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_a_convolution_is_the_dense_one_with_its_weight(
    transform: type[Transform], dims: int, mode: str, path: str
) -> None:
    # Low rank runs as two convolutions, the others on columns: shuffle stands for them in every geometry.
    every = (1 if mode == "zeros" else 4) if transform.name in ("low_rank", "shuffle") else 11
    x = sample(dims)
    for geometry in list(geometries(dims, mode))[::every]:
        layer = running(path, Conv(build(transform, IN * geometry.area), geometry, values(OUT, seed=9)))
        wanted = dense_like(layer, geometry)(x)
        assert_same(layer(x), wanted, geometry)
        assert_same(layer(x[0]), wanted[0], ("unbatched", geometry))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_a_channels_last_input_gives_the_same_output_channels_last(
    transform: type[Transform], mode: str, path: str
) -> None:
    x = sample(2).to(memory_format=torch.channels_last)
    for geometry in list(geometries(2, mode))[::7]:
        layer = running(path, Conv(build(transform, IN * geometry.area), geometry, values(OUT, seed=9)))
        got, wanted = layer(x), dense_like(layer, geometry)(x)
        assert_same(got, wanted, geometry)
        if wanted.is_contiguous(memory_format=torch.channels_last):
            assert got.is_contiguous(memory_format=torch.channels_last), (geometry, got.stride())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_a_contiguous_input_gives_a_contiguous_output(transform: type[Transform], path: str) -> None:
    for geometry in list(geometries(2, "zeros"))[::7]:
        layer = running(path, Conv(build(transform, IN * geometry.area), geometry))
        assert layer(sample(2)).is_contiguous(), geometry


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_the_output_can_be_viewed_as_that_of_a_dense_convolution(transform: type[Transform]) -> None:
    for kernel in (1, 3):
        geometry = Geometry((kernel, kernel), (1, 1), (0, 0), (1, 1), "zeros")
        for layer in (
            Conv(build(transform, IN * geometry.area), geometry),
            SeparableConv(build(transform, IN), geometry),
        ):
            assert layer(sample(2)).view(2, -1).shape == (2, OUT * (11 - kernel) * (12 - kernel))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_a_transposed_or_sliced_input_gives_the_same_output(transform: type[Transform], path: str) -> None:
    for kernel in (1, 3):
        geometry = Geometry((kernel,), (1,), (0,), (1,), "zeros")
        layer = running(path, Conv(build(transform, IN * kernel), geometry))
        x = values(2, 28, IN).mT[..., ::2]
        assert_same(layer(x), layer(x.contiguous()), geometry)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
@pytest.mark.parametrize("dims", [1, 2])
def test_both_paths_of_a_convolution_have_the_same_gradients(transform: type[Transform], dims: int) -> None:
    for geometry in list(geometries(dims, "zeros"))[::6]:
        gradients = []
        for path in PATHS:
            layer = running(path, Conv(build(transform, IN * geometry.area), geometry, values(OUT, seed=9)))
            x = sample(dims).requires_grad_()
            out = layer(x)
            leaves = [x, *layer.parameters()]
            gradients.append(torch.autograd.grad((out * values(*out.shape, seed=5)).sum(), leaves))
        for structured, formed in zip(*gradients, strict=True):
            assert_same(structured, formed, geometry)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_a_separable_convolution_is_a_depthwise_one_then_a_pointwise_one(
    transform: type[Transform], dims: int, mode: str
) -> None:
    run = F.conv1d if dims == 1 else F.conv2d
    x = sample(dims)
    for geometry, path in zip(list(geometries(dims, mode))[::7], itertools.cycle(PATHS), strict=False):
        layer = running(path, SeparableConv(build(transform, IN), geometry, values(OUT, seed=9)))
        padded = geometry.pad(x)
        hidden = run(padded, layer.depthwise.weight, None, geometry.stride, 0, geometry.dilation, IN)
        pointwise = layer.transform.matrix().reshape(OUT, IN, *(1,) * dims)
        assert_same(layer(x), run(hidden, pointwise, values(OUT, seed=9)), geometry)
        wanted = dense_like(layer, geometry)(x)
        assert_same(layer(x), wanted, ("merged", geometry))
        assert_same(layer(x[0]), wanted[0], ("unbatched", geometry))
        if dims == 2:
            assert_same(layer(x.to(memory_format=torch.channels_last)), wanted, ("channels last", geometry))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_a_separable_convolution_keeps_channels_last(transform: type[Transform]) -> None:
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")
    for path in PATHS:
        layer = running(path, SeparableConv(build(transform, IN), geometry))
        out = layer(sample(2).to(memory_format=torch.channels_last))
        assert out.is_contiguous(memory_format=torch.channels_last)


def test_an_automatic_path_is_one_of_the_two() -> None:
    for transform in TRANSFORMS:
        geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")
        formed = running("formed", Conv(build(transform, IN * 9), geometry))(sample(2))
        assert_same(Conv(build(transform, IN * 9), geometry)(sample(2)), formed, transform.name)


# ---- execution -------------------------------------------------------------------------------------------


def ways_to_run(layer: Layer) -> Iterator[Execution]:
    for order, layout in itertools.product(layer.transform.legal_orders, ("auto", "rows", "columns")):
        yield Execution(order.name, layout)  # type: ignore[arg-type]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_every_order_in_every_layout_is_the_same_layer_in_the_memory_of_its_input(
    transform: type[Transform],
) -> None:
    square = Geometry((3, 3), (2, 1), (1, 1), (1, 1), "zeros")
    layers = (
        Conv(build(transform, IN * 9), square, values(OUT, seed=9)),
        Conv(build(transform, IN), Geometry((1, 1), (2, 2), (0, 0), (1, 1), "zeros"), values(OUT, seed=9)),
        SeparableConv(build(transform, IN), square, values(OUT, seed=9)),
        Linear(build(transform, IN), values(OUT, seed=9)),
    )
    for layer in layers:
        inputs = [values(2, 3, IN)] if isinstance(layer, Linear) else [sample(2), sample(2)]
        if len(inputs) > 1:
            inputs[1] = inputs[1].to(memory_format=torch.channels_last)
        for x in inputs:
            layer.execution = Execution()
            wanted = layer(x)
            for execution in ways_to_run(layer):
                layer.execution = execution
                assert_same(layer(x), wanted, execution)
                assert layer(x).stride() == wanted.stride(), execution


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_a_trace_counts_the_order_that_is_set(transform: type[Transform]) -> None:
    layer = Conv(build(transform, IN * 9), Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros"))
    for order in layer.transform.legal_orders:
        layer.execution = Execution(order=order.name)
        assert sum(trace(layer, sample(2)).mult_adds.values()) == order.mult_adds(2 * 10 * 11), order


def test_a_call_is_what_is_prepared_and_then_run() -> None:
    for layer, x in ((conv_2d(), sample(2)), (separable_2d(), sample(2)), (linear(), values(4, IN))):
        assert layer.positions(x) == layer(x).numel() // OUT
        assert_same(layer.run(layer.prepare(layer.positions(x)), x), layer(x), type(layer))


def test_an_unfolded_low_rank_runs_as_two_convolutions_and_unfolds_nothing() -> None:
    layer = conv_2d()
    layer.execution = Execution(order="V,U")
    with torch.profiler.profile() as record:
        layer(sample(2))
    names = [event.key for event in record.key_averages()]
    assert "aten::conv2d" in names
    assert "aten::im2col" not in names


@pytest.mark.parametrize("make", ["conv_2d", "separable_2d", "linear"])
def test_an_order_or_layout_that_does_not_exist_is_refused_with_those_that_do(make: str) -> None:
    layer = globals()[make]()
    with pytest.raises(ValueError, match="order 'U,V' of low_rank is not one of 'formed', 'V,U'"):
        layer.execution = Execution(order="U,V")
    assert layer.execution == Execution()
    with pytest.raises(ValueError, match="layout 'diagonal' is not one of auto, rows, columns"):
        Execution(layout="diagonal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="recompute 'no' is not one of None, True, False"):
        Execution(recompute="no")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="execution is 'formed', not an Execution"):
        layer.execution = "formed"


def test_a_layer_prints_how_it_runs_where_that_was_set() -> None:
    for layer in (conv_2d(), separable_2d(), linear()):
        assert "Execution" not in repr(layer)
        layer.execution = Execution(order="formed", recompute=False)
        assert "execution=Execution(order='formed', recompute=False)" in repr(layer)


# ---- linear layers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_is_the_dense_one_with_its_weight(
    transform: type[Transform], path: str, bias: bool
) -> None:
    layer = running(path, Linear(build(transform, IN), values(OUT, seed=9) if bias else None))
    for shape in ((IN,), (5, IN), (2, 3, IN), (0, IN)):
        x = values(*shape)
        wanted = F.linear(x, layer.weight, layer.bias)
        assert layer(x).shape == wanted.shape
        if x.numel():
            assert_same(layer(x), wanted, shape)


# ---- merging and bookkeeping -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dims", [1, 2])
def test_a_merged_convolution_has_the_geometry_and_the_outputs(dims: int, mode: str) -> None:
    low_rank = us.get_transform("low_rank")
    for geometry in list(geometries(dims, mode))[::3]:
        x = sample(dims)
        for layer in (
            Conv(build(low_rank, IN * geometry.area), geometry, values(OUT, seed=9)),
            SeparableConv(build(low_rank, IN), geometry),
        ):
            merged = layer.merged()
            assert type(merged) is (nn.Conv1d if dims == 1 else nn.Conv2d)
            assert Geometry.of(merged) == geometry
            assert (merged.bias is None) == (layer.bias is None)
            assert_same(merged(x), layer(x), geometry)


def test_a_layer_shows_the_attributes_of_the_dense_one() -> None:
    geometry = Geometry((3, 1), (2, 1), (1, 0), (1, 2), "zeros")
    dense = geometry.dense(IN, OUT)
    low_rank = us.get_transform("low_rank")
    for layer in (
        Conv(build(low_rank, IN * 3), geometry),
        SeparableConv(build(low_rank, IN), geometry),
    ):
        for name in (
            "in_channels",
            "out_channels",
            "kernel_size",
            "stride",
            "padding",
            "dilation",
            "groups",
            "padding_mode",
            "bias",
        ):
            assert getattr(layer, name) == getattr(dense, name), name
        assert layer.weight.shape == dense.weight.shape
    linear = Linear(build(low_rank, IN))
    assert (linear.in_features, linear.out_features, linear.weight.shape) == (IN, OUT, (OUT, IN))


def test_a_layer_prints_its_transform_and_geometry() -> None:
    geometry = Geometry((3, 3), (2, 2), (1, 1), (1, 1), "zeros")
    text = repr(Conv(build(us.get_transform("low_rank"), IN * 9), geometry, values(OUT)))
    assert "kernel=(3, 3), stride=(2, 2), padding=(1, 1)" in text
    assert "LowRank(72 → 12, rank=7)" in text


def linear() -> Linear:
    return Linear(build(us.get_transform("low_rank"), IN))


# ---- bad input -------------------------------------------------------------------------------------------


def conv_2d() -> Conv:
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")
    return Conv(build(us.get_transform("low_rank"), IN * 9), geometry)


def separable_2d() -> SeparableConv:
    geometry = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")
    return SeparableConv(build(us.get_transform("low_rank"), IN), geometry)


@pytest.mark.parametrize("make", [conv_2d, separable_2d])
@pytest.mark.parametrize(
    "shape", [(2, IN + 1, 9, 9), (IN + 1, 9, 9), (2, 2, IN, 9, 9), (IN, 9), (IN,)], ids=str
)
def test_a_convolution_of_the_wrong_shape_is_refused_with_both_shapes(
    make: Any, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"expected \(batch, 8, …, …\) or \(8, …, …\), got \(") as caught:
        make()(values(*shape))
    assert str(IN + 1 if IN + 1 in shape else shape[-1]) in str(caught.value).partition("got")[2]


def test_a_vector_of_the_wrong_width_is_refused_with_both_widths() -> None:
    layer = Linear(build(us.get_transform("low_rank"), IN))
    with pytest.raises(ValueError, match=r"expected \(\.\.\., 8\), got \(3, 9\)"):
        layer(values(3, 9))


# ---- geometry --------------------------------------------------------------------------------------------


@st.composite
def any_geometry(draw: st.DrawFn) -> tuple[Geometry, Sizes]:
    """A geometry and an image that is large enough for it."""
    dims = draw(st.integers(1, 2))

    def sizes(low: int, high: int) -> Sizes:
        return tuple(draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims)))

    kernel, dilation = sizes(1, 5), sizes(1, 3)
    padding: Sizes | str = draw(st.sampled_from(["same", "valid"])) if draw(st.booleans()) else sizes(0, 4)
    stride = (1,) * dims if padding == "same" else sizes(1, 4)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    image = tuple(r + extra for r, extra in zip(reach, sizes(0, 9), strict=True))
    return Geometry(kernel, stride, padding, dilation, "zeros"), image


@settings(deadline=None, derandomize=True)  # a busy machine is no failure
@given(any_geometry())
def test_the_output_size_is_that_of_a_real_convolution(drawn: tuple[Geometry, Sizes]) -> None:
    geometry, image = drawn
    x = torch.empty(1, 2, *image, device="meta")
    out = geometry.dense(2, 3, device=torch.device("meta"))(x)
    assert tuple(geometry.output_size(x)) == tuple(out.shape[2:])
    assert geometry.area == math.prod(geometry.kernel)


@settings(deadline=None, derandomize=True)  # a busy machine is no failure
@given(any_geometry())
def test_patches_and_padding_are_those_of_a_real_convolution(drawn: tuple[Geometry, Sizes]) -> None:
    geometry, image = drawn
    x = torch.arange(2 * math.prod(image), dtype=torch.float64).reshape(1, 2, *image)
    weight = values(3, 2, *geometry.kernel)
    by_patches = (weight.flatten(1) @ geometry.patches(x)).reshape(1, 3, *geometry.output_size(x))
    assert_same(by_patches, geometry.convolve(x, weight), geometry)


def test_the_geometry_of_a_convolution_makes_one_of_the_same_geometry() -> None:
    for dims, mode in itertools.product((1, 2), MODES):
        for geometry in geometries(dims, mode):
            dense = geometry.dense(2, 4, bias=True, groups=2, dtype=torch.float64)
            assert Geometry.of(dense) == geometry
            assert (dense.groups, dense.weight.dtype, dense.bias is None) == (2, torch.float64, False)
