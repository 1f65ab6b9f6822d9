"""Kept: in inference what follows from the parameters alone is made once, and again when one changed."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy.counting.trace import trace
from understudy.layers import Conv, Execution, GroupedConv, Layer, Linear, SeparableConv, steps
from understudy.layers.geometry import Geometry
from understudy.transforms import Transform, get_transform
from understudy.transforms.orders import Order
from understudy.transforms.stages import Product

SQUARE = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")


def images(seed: int = 0) -> Tensor:
    return torch.randn(4, 16, 6, 6, generator=torch.Generator().manual_seed(seed))


def unfolded(name: str = "hashed", knob: int | None = None, channels: int = 16) -> Conv:
    made = get_transform(name)
    knobs = made.knobs(channels * 9, 24)
    layer = Conv(made(channels * 9, 24, knob or knobs[len(knobs) // 2]), SQUARE, torch.ones(24))
    return layer.eval()


def formings(layer: Layer, calls: Callable[[], object]) -> int:
    """How often the matrix is formed in these calls."""
    count = 0
    form = layer.transform.matrix

    def matrix() -> Tensor:
        nonlocal count
        count += 1
        return form()

    layer.transform.matrix = matrix  # type: ignore[method-assign]
    try:
        calls()
    finally:
        del layer.transform.matrix
    return count


def infer(layer: nn.Module) -> Tensor:
    with torch.no_grad():
        out: Tensor = layer(images())
    return out


def fresh(layer: Layer) -> Tensor:
    """What the layer gives where nothing is kept."""
    out: Tensor = layer(images())
    return out.detach()


def test_a_matrix_is_formed_once_in_inference_and_in_every_call_elsewhere() -> None:
    layer = unfolded()
    assert formings(layer, lambda: [infer(layer) for _ in range(3)]) == 1
    assert formings(layer.eval(), lambda: infer(layer)) == 0  # as before every prediction of many people
    with torch.inference_mode():
        assert formings(layer, lambda: layer(images())) == 0
    assert formings(layer, lambda: [layer(images()) for _ in range(2)]) == 2  # gradients flow
    layer.train()
    assert formings(layer, lambda: [infer(layer) for _ in range(2)]) == 2
    layer.eval()
    torch.testing.assert_close(infer(layer), fresh(layer))


def by_step(layer: Layer) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1)


def by_loading(layer: Layer) -> None:
    layer.load_state_dict(unfolded(knob=layer.transform.knob).state_dict())


def by_loading_another(layer: Layer) -> None:
    other = unfolded(knob=layer.transform.knob)
    other.transform.reset_parameters(2.0)
    layer.load_state_dict(other.state_dict(), assign=True)


def by_data(layer: Layer) -> None:
    layer.transform.get_parameter("weight").data.mul_(0.5)


def by_pruning(layer: Layer) -> None:
    values = layer.transform.get_parameter("weight").data.view(-1)
    values[8:][values[8:].abs() < values.abs().median()] = 0


def by_new_memory(layer: Layer) -> None:
    parameter = layer.transform.get_parameter("weight")
    parameter.data = parameter.data + 1


def by_index(layer: Layer) -> None:
    layer.transform.get_buffer("index").copy_(layer.transform.get_buffer("index").flip(0))


CHANGES = [by_step, by_loading, by_loading_another, by_data, by_pruning, by_new_memory, by_index]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_a_parameter_is_seen_by_the_next_call(change: Callable[[Layer], None]) -> None:
    layer = unfolded()
    layer.transform.reset_parameters(0.3)
    infer(layer)
    change(layer)
    torch.testing.assert_close(infer(layer), fresh(layer))


def test_a_move_a_copy_and_a_pickle_leave_what_is_kept_behind() -> None:
    layer = unfolded()
    infer(layer)
    assert len(layer._kept) == 1
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer).double()):
        assert len(other._kept) == 0
    assert {*layer.state_dict()} == {"bias", "transform.weight", "transform._extra_state"}
    layer.double()
    assert len(layer._kept) == 0
    with torch.no_grad():
        assert layer(images().double()).dtype == torch.float64


def test_a_pickled_layer_is_no_larger_for_having_run() -> None:
    layer, sizes = unfolded(), []
    for _ in range(2):
        file = io.BytesIO()
        torch.save(layer, file)
        sizes.append(file.tell())
        infer(layer)
    assert sizes[0] == sizes[1]


# Never a product of matrices, always one, and what is quicker by itself.
@pytest.mark.parametrize(("small", "lag"), [(0, False), (10**9, False), (0, True)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_pointwise_step_is_the_same_as_a_convolution_and_as_a_product(
    monkeypatch: pytest.MonkeyPatch, small: int, layout: torch.memory_format, lag: bool
) -> None:
    monkeypatch.setattr(steps, "products_lag", lambda: lag)
    monkeypatch.setattr(steps, "_SMALL", small)
    monkeypatch.setattr(steps, "can_pack", lambda *_, **__: False)
    monkeypatch.setattr(steps.AtRows, "packed", lambda self, _: self)  # calls what is counted here
    layer = Conv(get_transform("low_rank")(16, 24, 4), Geometry.pointwise(2), torch.ones(24)).eval()
    x = images().contiguous(memory_format=layout)
    products = 0
    multiply = F.linear

    def counted(*arguments: Tensor) -> Tensor:
        nonlocal products
        products += 1
        return multiply(*arguments)

    monkeypatch.setattr(F, "linear", counted)
    with torch.no_grad():
        out = layer(x)
    assert (products > 0) == ((lag or small > 0) and layout == torch.channels_last)
    assert out.is_contiguous(memory_format=layout)
    torch.testing.assert_close(out, layer.merged()(x))


@pytest.mark.parametrize("name", ["acdc", "toeplitz_like", "ldr", "block_circulant"])
def test_a_matrix_that_is_kept_lies_in_memory_row_by_row(name: str) -> None:
    made = get_transform(name)
    transform = made(24, 24, made.knobs(24, 24)[0])
    assert not transform.matrix().is_contiguous()  # or there is nothing to show
    layer = Linear(transform).eval()
    layer.execution = Execution("formed")
    with torch.no_grad():
        (product,) = layer.prepare(1)
    assert isinstance(product, Product)
    assert product.weight.is_contiguous()


def test_what_is_kept_under_autocast_is_not_used_without_it() -> None:
    layer = Linear(get_transform("tensor_train")(64, 64, 12)).eval()
    x = torch.randn(100_000, 64)
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        assert layer(x).dtype == torch.float32


@pytest.mark.parametrize("name", ["tensor_train", "tucker", "shuffle", "acdc", "low_rank"])
@pytest.mark.parametrize("channels", [16, 15])
def test_no_default_order_unfolds_patches_and_the_trace_is_what_the_shapes_say(
    name: str, channels: int
) -> None:
    layer = unfolded(name, channels=channels)
    x = torch.randn(2, channels, 7, 6)
    transform: Transform = layer.transform
    with torch.profiler.profile() as record:
        out = infer_on(layer, x)
    assert "aten::im2col" not in [event.key for event in record.key_averages()]
    torch.testing.assert_close(out, layer.merged()(x).detach(), atol=1e-4, rtol=1e-4)
    stated = transform.executed_mult_adds(channels * 9, 24, transform.knob, 2 * 42, 9)
    assert sum(trace(layer, x).mult_adds.values()) == stated


def infer_on(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = layer(x)
    return out


@pytest.mark.parametrize("name", ["low_rank", "hashed"])
def test_steps_that_are_kept_follow_parameters_bias_execution_and_shape(name: str) -> None:
    made = get_transform(name)
    knobs = made.knobs(16, 24)
    transform = made(16, 24, knobs[len(knobs) // 2])
    separable = SeparableConv(transform, SQUARE, torch.ones(24)).eval()
    linear = Linear(copy.deepcopy(transform), torch.ones(24)).eval()
    inputs = {separable: images(), linear: images().movedim(1, -1)}
    for layer, x in inputs.items():
        for change in (
            lambda layer: layer.eval(),
            lambda layer: [parameter.data.mul_(0.5) for parameter in layer.transform.parameters()],
            lambda layer: layer.bias.data.add_(1),
            lambda layer: setattr(layer, "execution", Execution(order="formed")),
            lambda layer: layer.load_state_dict(
                {key: value.clone() for key, value in layer.state_dict().items()}, assign=True
            ),
        ):
            change(layer)
            for part in (x, x[:2], x):
                with torch.no_grad():
                    got = layer(part)
                torch.testing.assert_close(got, layer(part).detach(), atol=1e-5, rtol=1e-5)
    taps = separable.depthwise.weight
    taps.data = taps.data * 2
    torch.testing.assert_close(infer(separable), fresh(separable), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["low_rank", "hashed"])
def test_a_bias_or_a_transform_that_comes_later_is_seen_by_the_next_call(name: str) -> None:
    made = get_transform(name)
    knobs = made.knobs(24, 24)
    layer = Linear(made(24, 24, knobs[len(knobs) // 2])).eval()
    x = images().reshape(-1, 24)

    def change_is_seen(change: Callable[[], object]) -> None:
        before = infer_on(layer, x)
        change()
        after = infer_on(layer, x)
        torch.testing.assert_close(after, layer(x).detach(), atol=1e-5, rtol=1e-5)
        assert not torch.allclose(before, after)

    change_is_seen(lambda: setattr(layer, "bias", nn.Parameter(torch.ones(24))))
    change_is_seen(lambda: setattr(layer, "bias", None))
    change_is_seen(lambda: setattr(layer, "transform", made(24, 24, knobs[len(knobs) // 2], seed=7)))
    with pytest.raises(ValueError, match=r"expected \(\.\.\., 24\)"):
        infer_on(layer, images())


def test_a_layer_of_tensors_that_are_not_what_they_seem_keeps_nothing() -> None:
    with torch.inference_mode():
        layer = Linear(get_transform("hashed")(24, 24, 20)).eval()
        infer_on(layer, images().reshape(-1, 24))
    assert len(layer._kept) == 0


@pytest.mark.parametrize("name", ["low_rank", "tensor_train"])
def test_a_layer_that_keeps_compiles_as_one_graph(name: str) -> None:
    layer = unfolded(name)
    kept = infer(layer)
    layer.compile(fullgraph=True, backend="eager")
    torch.testing.assert_close(infer(layer), kept)


def test_the_joined_kernels_of_groups_are_kept_and_follow_their_parameters() -> None:
    convs = [Conv(get_transform("low_rank")(72, 8, 2, seed=seed), SQUARE) for seed in (1, 2)]
    layer = GroupedConv(convs, torch.ones(16)).eval()
    first = infer(layer)
    (kept,) = layer._kept._record.steps.values()  # type: ignore[union-attr]
    assert kept is not None
    torch.testing.assert_close(first, fresh(layer), atol=1e-5, rtol=1e-5)
    convs[1].transform.get_parameter("u").data.mul_(2)
    torch.testing.assert_close(infer(layer), fresh(layer), atol=1e-5, rtol=1e-5)


def test_how_a_call_runs_is_decided_once_for_inputs_of_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    decide = Layer.order_in_inference

    def counted(self: Layer, positions: int, *, kept: bool = True) -> Order:
        asked.append(positions)
        return decide(self, positions, kept=kept)

    monkeypatch.setattr(Layer, "order_in_inference", counted)
    made = get_transform("shuffle")
    layer = Linear(made(64, 64, next(iter(made.knobs(64, 64))))).eval()
    layer.execution = Execution(order=layer.transform.legal_orders[1].name)  # which is no plain product
    with torch.no_grad():
        first, again = (layer(images().reshape(-1, 64)) for _ in range(2))
        layer(images().reshape(-1, 64)[:5])
    assert len(asked) == 2
    torch.testing.assert_close(first, again)
