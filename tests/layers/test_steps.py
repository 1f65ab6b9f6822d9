"""Steps: with weights laid out ahead a call gives what it gives without, and follows every change."""

from __future__ import annotations

import platform
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils.parametrize import register_parametrization
from torch.profiler import ProfilerActivity, profile

from representatives import TRANSFORMS
from understudy._util import packing
from understudy._util.packing import Packs, can_pack
from understudy.layers import Conv, Execution, GroupedConv, InsideConv, Layer, Linear, SeparableConv, steps
from understudy.layers.geometry import Geometry
from understudy.transforms import Transform, get_transform, two_factors

SQUARE = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")
IN, OUT = 24, 32
THRESHOLDS = ("_PACKED", "_PACKED_WHERE_PRODUCTS_ARE_QUICK", "_PACKED_CONVOLUTION", "_PACKED_BLOCKS")
needs_packing = pytest.mark.skipif(
    not can_pack(torch.ones(1)), reason="this build of PyTorch lays no weights out ahead on this processor"
)


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small layers lay their weights out ahead too, and multiply blocks in groups."""
    for name in THRESHOLDS:
        monkeypatch.setattr(steps, name, 0)
    monkeypatch.setattr(steps, "products_lag", lambda: True)


def transform(name: str, in_features: int = IN, seed: int = 0) -> Transform:
    made = get_transform(name)
    knobs = list(made.knobs(in_features, OUT))
    return made(in_features, OUT, knobs[len(knobs) // 2], seed=seed)


def layers(name: str) -> dict[str, Layer]:
    """A stand-in of every kind."""
    bias = torch.linspace(-1, 1, OUT)
    strided = Geometry((3, 3), (2, 1), (1, 1), (1, 1), "zeros")
    found: dict[str, Layer] = {
        "linear": Linear(transform(name), bias),
        "no bias": Linear(transform(name)),
        "pointwise": Conv(transform(name), Geometry.pointwise(2), bias),
        "unfolded": Conv(transform(name, 9 * IN), SQUARE, bias),
        "separable": SeparableConv(transform(name), strided, bias),
        "grouped": GroupedConv(
            [SeparableConv(transform(name, seed=seed), SQUARE) for seed in (1, 2)], torch.ones(2 * OUT)
        ),
    }
    if issubclass(get_transform(name), two_factors.TwoFactors):
        found["inside"] = InsideConv(transform(name), strided, bias)  # type: ignore[arg-type]
    return {kind: layer.eval() for kind, layer in found.items()}


def in_parts(kind: str) -> Layer:
    """A stand-in of two factors that runs as such, however few its channels are."""
    layer = layers("low_rank")[kind]
    layer.execution = Execution(order=layer.transform.legal_orders[1].name)
    return layer


def inputs(layer: Layer, batch: int, side: int) -> list[Tensor]:
    """Of both layouts, cropped, strided, expanded, and of another type."""
    generator = torch.Generator().manual_seed(batch + side)
    if isinstance(layer, Linear):
        x = torch.randn(batch, side, IN, generator=generator)
        others = [torch.randn(batch, IN, side, generator=generator).mT, x[:, ::2], x.expand(2, *x.shape)]
        return [x, x[:, 0], *others]
    assert isinstance(layer, Conv | SeparableConv | InsideConv | GroupedConv)
    channels = layer.in_channels
    x = torch.randn(batch, channels, side + 2, side, generator=generator)
    last = x.contiguous(memory_format=torch.channels_last)
    return [x, last, last[:, :, 1:-1], last[:, :, :, ::2], last[:1].expand(3, -1, -1, -1), last[0]]


@pytest.mark.parametrize("name", TRANSFORMS)
@settings(max_examples=4, deadline=None)
@given(batch=st.integers(1, 3), side=st.integers(3, 6))
def test_what_is_kept_gives_what_is_not(name: str, batch: int, side: int) -> None:
    for kind, layer in layers(name).items():
        for x in inputs(layer, batch, side):
            with torch.inference_mode():
                for _ in range(2):
                    made = layer(x)
            wanted = layer(x).detach()
            torch.testing.assert_close(made, wanted, atol=1e-4, rtol=1e-4, msg=kind)
            is_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
            if is_last:
                assert made.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["linear", "pointwise", "separable"])
def test_other_precisions_run_as_they_did(kind: str, dtype: torch.dtype) -> None:
    layer = layers("shuffle")[kind].to(dtype)
    for x in inputs(layer, 2, 4):
        with torch.no_grad():
            made = layer(x.to(dtype))
        assert made.dtype == dtype
        torch.testing.assert_close(made, layer(x.to(dtype)).detach(), atol=0.1, rtol=0.1)


@needs_packing
@pytest.mark.parametrize("kind", ["linear", "pointwise", "separable"])
def test_an_input_of_another_type_than_the_layer_is_refused(kind: str) -> None:
    layer = layers("low_rank")[kind]
    x = inputs(layer, 2, 4)[1]
    with torch.no_grad():
        layer(x)
        with pytest.raises(RuntimeError, match=r"same dtype|expected m1 and m2|should be the same|dtype"):
            layer(x.double())


@needs_packing
@pytest.mark.parametrize("name", ["low_rank", "hashed", "shuffle", "tensor_train"])
def test_a_change_of_any_parameter_is_seen(name: str) -> None:
    for kind, layer in layers(name).items():
        x = inputs(layer, 2, 4)[1]
        with torch.no_grad():
            layer(x)
        assert layer._kept._record is not None
        for path, parameter in list(layer.named_parameters()):
            before = layer(x).detach()
            for change in (_in_place, _through_data, _by_other_memory):
                change(parameter)
                with torch.no_grad():
                    made = layer(x)
                torch.testing.assert_close(
                    made, layer(x).detach(), atol=1e-3, rtol=1e-4, msg=f"{kind} {path}"
                )
            assert not torch.allclose(before, made), f"{kind} {path}"


@torch.no_grad()
def _in_place(parameter: nn.Parameter) -> None:
    parameter.view(-1)[-1] += 1


def _through_data(parameter: nn.Parameter) -> None:
    parameter.data.mul_(1.5)


def _by_other_memory(parameter: nn.Parameter) -> None:
    parameter.data = parameter.data + 0.25


def calls(run: Callable[[], object]) -> list[str]:
    """The operations of a call."""
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    return [event.name for event in seen.events()]


@needs_packing
def test_weights_are_laid_out_once_and_products_for_all_shapes() -> None:
    layer = in_parts("linear")
    with torch.inference_mode():
        for count in (1, 2, 3):
            layer(torch.ones(count, IN))
    seen = calls(lambda: layer(torch.ones(4, IN)))
    assert "mkldnn::_linear_pointwise" in seen
    assert "mkldnn::_reorder_linear_weight" not in seen


@needs_packing
def test_a_kernel_is_laid_out_for_some_sizes_and_runs_for_all() -> None:
    layer = in_parts("separable")
    found = []
    for side in range(3, 11):
        x = torch.randn(1, IN, side, side).contiguous(memory_format=torch.channels_last)
        found.append("mkldnn::_convolution_pointwise" in calls(lambda x=x: layer(x)))  # type: ignore[misc]
        with torch.inference_mode():
            made = layer(x)
        torch.testing.assert_close(made, layer(x).detach(), atol=1e-4, rtol=1e-4)
    assert found == [True] * packing._SIZES + [False] * (8 - packing._SIZES)


@needs_packing
def test_small_ones_are_not_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THRESHOLDS:
        monkeypatch.setattr(steps, name, 1_000_000)
    layer = layers("low_rank")["linear"]
    assert not [each for each in calls(lambda: layer(torch.ones(2, IN))) if each.startswith("mkldnn::")]


def test_without_the_library_the_same_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_operations", lambda: None)
    assert not can_pack(torch.ones(1))
    with pytest.raises(RuntimeError, match="cannot be laid out ahead here"):
        Packs().product(torch.ones(1, 1), None)
    for kind, layer in layers("shuffle").items():
        for x in inputs(layer, 2, 4):
            with torch.inference_mode():
                made = layer(x)
            torch.testing.assert_close(made, layer(x).detach(), atol=1e-4, rtol=1e-4, msg=kind)


def test_nothing_is_laid_out_where_the_library_is_switched_off() -> None:
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        assert not can_pack(torch.ones(1))
    finally:
        torch._C._set_mkldnn_enabled(before)


def test_other_processors_and_builds_lay_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    packing._operations.cache_clear()
    try:
        monkeypatch.setattr(platform, "machine", lambda: "arm64")
        assert packing._operations() is None
        packing._operations.cache_clear()
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        monkeypatch.setattr(torch.ops, "mkldnn", object())
        assert packing._operations() is None
    finally:
        packing._operations.cache_clear()


@pytest.mark.parametrize("name", ["low_rank", "shuffle"])
def test_the_whole_kernel_and_the_formed_map_between_channels_are_kept_apart(name: str) -> None:
    layer = layers(name)["separable"]
    assert isinstance(layer, SeparableConv)
    x = inputs(layer, 2, 4)[1]
    for execution in (Execution(), Execution(order="formed"), Execution()):
        layer.pointwise._execution = execution  # and nothing is dropped
        for part in (x, x[:1], x[:, :, 1:]):
            if layer._kept._record is not None:
                layer._kept._record.steps.clear()
            with torch.inference_mode():
                made = layer(part)
            torch.testing.assert_close(made, layer(part).detach(), atol=1e-4, rtol=1e-4)


@needs_packing
def test_a_hook_on_the_taps_is_called_whenever_it_comes() -> None:
    layer = in_parts("separable")
    assert isinstance(layer, SeparableConv)
    x = inputs(layer, 2, 4)[1]
    seen: list[Tensor] = []

    def doubled_and_seen(_module: nn.Module, _inputs: object, out: Tensor) -> Tensor:
        seen.append(out)
        return 2 * out

    with torch.inference_mode():
        plain = layer(x)
        hook = layer.depthwise.register_forward_hook(doubled_and_seen)
        doubled = layer(x)
        hook.remove()
        again = layer(x)
    assert len(seen) == 1
    assert not torch.allclose(plain, doubled)
    torch.testing.assert_close(plain, again)


def test_an_own_way_to_apply_stages_is_kept() -> None:
    class Doubled(type(transform("shuffle"))):  # type: ignore[misc]
        def apply_rows(self, state, x):  # type: ignore[no-untyped-def]
            return 2 * super().apply_rows(state, x)

    made = Doubled(IN, OUT, transform("shuffle").knob)
    layer = Linear(made).eval()
    layer.execution = Execution(order=made.legal_orders[1].name)
    x = torch.randn(40, IN)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), 2 * (x @ made.matrix().T), atol=1e-4, rtol=1e-4)


def test_empty_batches_come_back_empty() -> None:
    for layer in layers("shuffle").values():
        for x in inputs(layer, 2, 4)[:2]:
            with torch.inference_mode():
                assert layer(x[:0]).shape == (0, *layer(x).shape[1:])


@needs_packing
@pytest.mark.parametrize("kind", ["linear", "pointwise", "separable", "unfolded"])
def test_a_bias_is_read_as_it_lies(kind: str) -> None:
    layer = in_parts(kind)
    x = inputs(layer, 2, 4)[1]
    for bias in (torch.ones(1).expand(OUT), torch.arange(2.0 * OUT)[::2]):
        held = layer.pointwise if isinstance(layer, SeparableConv) else layer
        held.bias = nn.Parameter(bias)
        with torch.inference_mode():
            made = layer(x)
        torch.testing.assert_close(made, layer(x).detach(), atol=1e-4, rtol=1e-4)
        held.bias.data = torch.linspace(3, 5, 2 * OUT)[::2]
        with torch.inference_mode():
            made = layer(x)
        torch.testing.assert_close(made, layer(x).detach(), atol=1e-4, rtol=1e-4)


def test_what_a_parametrisation_holds_is_watched() -> None:
    class Moved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(1))

        def forward(self, w: Tensor) -> Tensor:
            return w + self.bias

    layer = in_parts("linear")
    x = inputs(layer, 2, 4)[0]
    name, _ = next(layer.transform.named_parameters())
    for _ in range(2):  # a second one comes to lie beside the first
        moved = Moved()
        register_parametrization(layer.transform, name, moved)
        for change in (lambda: None, lambda moved=moved: moved.bias.data.add_(1)):
            change()
            with torch.no_grad():
                made = layer(x)
            torch.testing.assert_close(made, layer(x).detach(), atol=1e-4, rtol=1e-4)


@needs_packing
@pytest.mark.parametrize("kind", ["linear", "separable"])
def test_a_write_through_data_to_the_end_of_a_tensor_is_seen(kind: str) -> None:
    layer = in_parts(kind)
    x = inputs(layer, 2, 4)[1]
    for parameter in layer.parameters():
        with torch.no_grad():
            layer(x)
        parameter.data.view(-1)[-20:] += 3
        with torch.no_grad():
            made = layer(x)
        torch.testing.assert_close(made, layer(x).detach(), atol=1e-3, rtol=1e-4)


def test_a_write_through_data_to_a_tensor_that_lies_transposed_is_seen() -> None:
    layer = in_parts("linear")
    x = inputs(layer, 2, 4)[0]
    for parameter in layer.transform.parameters():
        parameter.data = parameter.data.t().contiguous().t()
        with torch.no_grad():
            layer(x)
        parameter.data.mul_(3)
        with torch.no_grad():
            made = layer(x)
        torch.testing.assert_close(made, layer(x).detach(), atol=1e-3, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own rules call it
@pytest.mark.parametrize("kind", ["linear", "pointwise", "separable"])
def test_tangents_go_through_where_gradients_do_not(kind: str) -> None:
    layer = in_parts(kind)
    x = inputs(layer, 2, 4)[1]
    with torch.no_grad():
        layer(x)
        with forward_ad.dual_level():
            out = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, torch.ones_like(x))))
    assert out.tangent is not None
    torch.testing.assert_close(out.primal, layer(x).detach(), atol=1e-4, rtol=1e-4)


def test_fake_parameters_in_the_place_of_real_ones_are_told_apart() -> None:
    layer = in_parts("linear")
    x = inputs(layer, 2, 4)[0]
    with torch.no_grad():
        layer(x)
        mode = FakeTensorMode()
        fake: dict[str, nn.Parameter | Tensor] = {
            name: mode.from_tensor(parameter) for name, parameter in layer.named_parameters()
        }
        assert torch.func.functional_call(layer, fake, (mode.from_tensor(x),)).shape == layer(x).shape


@needs_packing
def test_taps_whose_call_was_changed_are_called_so() -> None:
    layer = in_parts("separable")
    assert isinstance(layer, SeparableConv)
    x = inputs(layer, 2, 4)[1]
    seen: list[nn.Module] = []
    with torch.inference_mode():
        plain = layer(x)
        hook = register_module_forward_hook(lambda module, _inputs, _out: seen.append(module))
        layer(x)
        hook.remove()
        assert layer.depthwise in seen
        forward = layer.depthwise.forward
        layer.depthwise.forward = lambda x: 2 * forward(x)  # type: ignore[method-assign, assignment]
        assert not torch.allclose(plain, layer(x))


@needs_packing
def test_an_image_smaller_than_the_kernel_is_refused_as_pytorch_does() -> None:
    wide = Geometry((5, 5), (1, 1), (0, 0), (1, 1), "zeros")
    layer = SeparableConv(transform("low_rank"), wide).eval()
    layer.execution = Execution(order=layer.transform.legal_orders[1].name)
    x = torch.ones(1, IN, 9, 3).contiguous(memory_format=torch.channels_last)
    with torch.no_grad(), pytest.raises(RuntimeError, match="Kernel size can't be greater than actual"):
        layer(x)


@needs_packing
def test_the_library_can_be_switched_off_at_any_time() -> None:
    layer = in_parts("separable")
    x = inputs(layer, 2, 4)[1]
    assert "mkldnn::_convolution_pointwise" in calls(lambda: layer(x))
    torch._C._set_mkldnn_enabled(False)
    try:
        assert not [each for each in calls(lambda: layer(x)) if "mkldnn" in each]
    finally:
        torch._C._set_mkldnn_enabled(True)


@needs_packing
def test_joined_kernels_of_many_sizes_are_laid_out_a_bounded_number_of_times() -> None:
    layer = layers("low_rank")["grouped"]
    layer.execution = Execution(order=layer.transform.legal_orders[1].name)
    packed = 0
    for side in range(3, 23):
        x = torch.randn(1, 2 * IN, side, side).contiguous(memory_format=torch.channels_last)
        packed += calls(lambda x=x: layer(x)).count("mkldnn::_convolution_pointwise")  # type: ignore[misc]
        with torch.no_grad():
            made = layer(x)
        torch.testing.assert_close(made, layer(x).detach(), atol=1e-4, rtol=1e-4)
    assert packed == packing._LAYOUTS
