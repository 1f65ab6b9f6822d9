"""Lowering: plain modules that hold exactly the parameters of a stand-in, and give its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from understudy.deploy.runtimes import imported
from understudy.layers import Conv, Execution, GroupedConv, InsideConv, Layer, Linear, SeparableConv
from understudy.layers.choosing import Purpose
from understudy.layers.dense import Shell, dense_map
from understudy.layers.geometry import Geometry
from understudy.layers.held import held_stages
from understudy.layers.lowering import lowered
from understudy.layers.plain import Computed, SharedConv, Split
from understudy.transforms import Transform, get_transform, known_transforms
from understudy.transforms.base import Shapes
from understudy.transforms.dense import Dense
from understudy.transforms.low_rank import LowRank
from understudy.transforms.orders import Order
from understudy.transforms.stages import Product, Scale, State
from understudy.transforms.two_factors import TwoFactors

FIXED, FILE = Purpose(fixed=True), Purpose(file=True)
TRANSFORMS = list(known_transforms().values())
STRIDED = Geometry((1, 1), (2, 2), (0, 0), (1, 1), "zeros")
SQUARE = Geometry((3, 3), (2, 1), (1, 1), (1, 1), "reflect")
LINE = Geometry((3,), (1,), (1,), (1,), "zeros")


def build(transform: type[Transform], in_features: int, out_features: int = 24) -> Transform:
    knobs = transform.knobs(in_features, out_features)
    return transform(in_features, out_features, knobs[len(knobs) // 2], seed=3, dtype=torch.float64)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layers(transform: type[Transform]) -> list[tuple[Layer, Tensor]]:
    bias, images = values(24, seed=9), values(3, 16, 10, 8)
    made = build(transform, 16)
    inside = [InsideConv(made, SQUARE, bias)] if isinstance(made, TwoFactors) else []
    return [
        *((layer, images) for layer in inside),
        (Conv(build(transform, 16 * 9), SQUARE, bias), images),
        (Conv(build(transform, 16), STRIDED), images),
        (Conv(build(transform, 16), Geometry.pointwise(2), bias), images),
        (Conv(build(transform, 16 * 3), LINE, bias), values(3, 16, 10)),
        (SeparableConv(build(transform, 16), SQUARE, bias), images),
        (Linear(build(transform, 16), bias), values(3, 5, 16)),
        (GroupedConv([Conv(build(transform, 16 * 9, 12), SQUARE) for _ in "ab"], bias), values(3, 32, 10, 8)),
        (GroupedConv([SeparableConv(build(transform, 16, 12), LINE) for _ in "ab"]), values(3, 32, 10)),
        (Linear(build(transform, 16)), values(7, 16)),
    ]


def entries(module: nn.Module) -> Tensor:
    """All values of all parameters, sorted: they may lie in another order and shape."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()]).sort().values


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.name)
def test_lowered_modules_have_the_same_outputs_with_exactly_the_same_parameters(
    transform: type[Transform],
) -> None:
    for layer, x in layers(transform):
        for order in ("auto", *(order.name for order in layer.transform.legal_orders)):
            layer.execution = Execution(order=order)
            plain = lowered(layer.eval())
            torch.testing.assert_close(plain(x), layer(x), rtol=1e-9, atol=1e-9)
            assert torch.equal(entries(plain), entries(layer)), order
            assert not any(isinstance(module, Layer) for module in plain.modules()), order
            if order == "auto":
                torch.testing.assert_close(lowered(layer, FILE)(x), layer(x), rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(lowered(layer, FIXED)(x), layer(x), rtol=1e-9, atol=1e-9)


def test_unfolded_low_rank_is_two_convolutions_and_shuffle_two_grouped_ones() -> None:
    square = Geometry((3, 3), (1, 1), (1, 1), (1, 1), "zeros")
    low_rank = lowered(Conv(get_transform("low_rank")(64 * 9, 64, 8), square, torch.zeros(64)))
    first, second = low_rank.children()
    assert isinstance(first, nn.Conv2d)
    assert isinstance(second, nn.Conv2d)
    assert (first.kernel_size, first.out_channels, second.kernel_size) == ((3, 3), 8, (1, 1))
    assert first.bias is None
    assert second.bias is not None
    shuffle = lowered(Conv(get_transform("shuffle")(64 * 9, 64, 4), square))
    assert [part.groups for part in shuffle.children() if isinstance(part, nn.Conv2d)] == [4, 4]


def test_a_linear_layer_of_low_rank_is_two_of_pytorch_the_last_with_the_bias() -> None:
    layer = Linear(LowRank(64, 24, 4), values(24).float())
    plain = lowered(layer)
    assert [type(part) for part in plain.children()] == [nn.Linear, nn.Linear]
    assert [name for name, _ in plain.named_parameters()] == ["0.weight", "1.weight", "1.bias"]
    torch.testing.assert_close(plain(values(5, 64).float()), layer(values(5, 64).float()))


def test_what_is_taken_inside_is_three_convolutions() -> None:
    parts = list(lowered(InsideConv(LowRank(64, 32, 8), SQUARE, torch.zeros(32))).children())
    shapes = [(part.kernel_size, part.stride, part.groups) for part in parts if isinstance(part, nn.Conv2d)]
    assert shapes == [((1, 1), (1, 1), 1), ((3, 3), (2, 1), 8), ((1, 1), (1, 1), 1)]
    assert [part.bias is not None for part in parts if isinstance(part, nn.Conv2d)] == [False, False, True]


@pytest.mark.parametrize("name", ["hashed", "acdc"])
def test_what_has_no_plain_stages_is_one_product_with_a_matrix_that_is_kept_until_parameters_change(
    name: str,
) -> None:
    layer, x = Linear(build(get_transform(name), 16), values(24)).eval(), values(5, 16)
    plain: Any = lowered(layer)
    (part,) = plain
    assert isinstance(part, Computed)
    torch.testing.assert_close(plain.weight, layer.weight)
    assert torch.equal(plain.bias, values(24))
    with torch.no_grad():
        before = plain(x)
        assert len(part._kept) == 1
        for parameter in part.transforms.parameters():
            parameter.mul_(2)
        assert not torch.allclose(plain(x), before)
    plain(x).sum().backward()
    assert all(parameter.grad is not None for parameter in plain.parameters())


def test_a_dense_stand_in_is_one_layer_of_pytorch() -> None:
    dense = get_transform("dense")
    (linear,) = lowered(Linear(dense(16, 24, 1), values(24))).children()
    assert isinstance(linear, nn.Linear)
    grouped = GroupedConv([SeparableConv(dense(16, 24, 1), SQUARE) for _ in "ab"])
    assert [part.groups for part in lowered(grouped).children() if isinstance(part, nn.Conv2d)] == [32, 2]


def test_a_diagonal_is_numbers_that_scale_channels() -> None:
    class Diagonal(Dense):
        """Rows scaled by numbers of their own."""

        @classmethod
        def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
            return {**super().shapes(in_features, out_features, knob), "scale": (out_features,)}

        @classmethod
        def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:  # noqa: ARG003
            return (Order("W,S", 0, (in_features + 1) * out_features, whole=True),)

        def stages(self, order: str) -> State:  # noqa: ARG002
            return Product(self.weight), Scale(self.get_parameter("scale"))

        def matrix(self) -> Tensor:
            return self.get_parameter("scale")[:, None] * self.weight

    one = Conv(Diagonal(16, 24, 1, dtype=torch.float64), Geometry.pointwise(2), values(24))
    grouped = GroupedConv([Conv(Diagonal(16, 24, 1, dtype=torch.float64), STRIDED) for _ in "ab"], values(48))
    linear = Linear(Diagonal(16, 24, 1, dtype=torch.float64))
    for layer, x in ((one, values(2, 16, 3, 3)), (grouped, values(2, 32, 5, 5)), (linear, values(3, 16))):
        plain = lowered(layer)
        assert "Scaled" in [type(part).__name__ for part in plain.children()]
        torch.testing.assert_close(plain(x), layer(x))
        assert torch.equal(entries(plain), entries(layer))


def test_an_example_chooses_the_order_for_that_many_positions() -> None:
    model = nn.Sequential(nn.Linear(512, 512)).train()
    student = us.substitute(model, us.plan(model, "shuffle", ratio=0.2, include=["*"]), init="fresh")
    wanted: dict[int, set[str]] = {1: set(), 4096: set()}
    for count, found in wanted.items():
        (layer,) = (layer for _, layer in us.stand_ins(student))
        is_formed = layer.order_in_inference(count).name == "formed"
        plain = us.lower(student, (count, 512))
        found |= {type(part).__name__ for part in plain.modules()}
        assert ("Computed" in found) == is_formed
        x = torch.randn(3, 512)
        torch.testing.assert_close(plain(x), student(x), rtol=1e-4, atol=1e-5)
        assert student.training
    assert wanted[1] != wanted[4096]


def test_a_file_takes_stages_where_the_positions_of_the_example_are_worth_their_calls(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(96, 96, 1))
    student = us.substitute(model, us.plan(model, "low_rank", ratio=0.3, include=["*"])).eval()
    layers = {}
    for batch in (1, 64):
        x = torch.randn(batch, 96, 8, 8)
        done = us.export(student, tmp_path / f"{batch}.onnx", x)
        graph = imported("onnx").load(str(done.path)).graph
        layers[batch] = [node.op_type for node in graph.node].count("Conv")
    assert layers == {1: 1, 64: 2}
    (layer,) = (layer for _, layer in us.stand_ins(student))
    assert len(list(lowered(layer, FILE).children())) == 2, "positions that nobody knows are many"


@pytest.mark.parametrize("area", [1, 9])
def test_slices_of_images_are_the_groups_of_a_convolution_that_share_a_kernel(area: int) -> None:
    geometry = Geometry.pointwise(2) if area == 1 else SQUARE
    layer = Conv(get_transform("tensor_train")(64 * area, 64, 6), geometry, values(64).float()).eval()
    layer.execution = Execution(order="N,M,O")
    plain: Any = lowered(layer)
    assert [type(part) for part in plain] == [SharedConv, nn.Conv2d, SharedConv]
    assert all(part.groups > 1 for part in plain[::2])
    assert plain[2].bias is not None
    x = torch.randn(2, 64, 7, 6)
    torch.testing.assert_close(plain(x), layer(x), rtol=1e-4, atol=1e-5)


def test_fixed_modules_hold_what_follows_from_parameters_where_that_is_not_much_more() -> None:
    for name, knob in (("tensor_train", 6), ("tucker", 6), ("low_rank", 6), ("hashed", 2000)):
        for layer in (
            Conv(get_transform(name)(64, 64, knob), Geometry.pointwise(2), torch.ones(64)),
            Linear(get_transform(name)(64, 64, knob), torch.ones(64)),
        ):
            plain = lowered(layer.eval(), FIXED)
            x = torch.randn(2, 64, 5, 5) if isinstance(layer, Conv) else torch.randn(3, 64)
            torch.testing.assert_close(plain(x), layer(x), rtol=1e-4, atol=1e-5)
            assert not any(isinstance(module, Transform) for module in plain.modules()), name
            assert len(entries(plain)) <= 4 * len(entries(layer))
    few = Conv(get_transform("hashed")(64, 64, 1000), Geometry.pointwise(2))
    assert isinstance(
        next(lowered(few, FIXED).children()), Computed
    )  # all 4,096 entries are more than four times as many


@pytest.mark.parametrize("order", ["auto", "formed"])
def test_fixed_kernels_of_groups_and_of_taps_inside_are_plain(order: str) -> None:
    inside = InsideConv(LowRank(16, 24, 12), LINE, torch.ones(24))
    inside.execution = Execution(order=order)
    hashed = get_transform("hashed")
    grouped = GroupedConv([Conv(hashed(16 * 9, 24, 2000), SQUARE) for _ in "ab"], torch.ones(48))
    for layer, x in ((inside, torch.randn(2, 16, 9)), (grouped, torch.randn(2, 32, 9, 8))):
        plain = lowered(layer.eval(), FIXED)
        torch.testing.assert_close(plain(x), layer(x), rtol=1e-4, atol=1e-5)
        assert not any(isinstance(module, Transform) for module in plain.modules())


def test_fixed_modules_are_the_quickest_that_are_small_enough() -> None:
    tucker, size = get_transform("tucker"), 256
    small = next(knob for knob in tucker.knobs(size, size) if 4 * tucker.params(size, size, knob) >= size**2)
    formed, parts = (lowered(Linear(tucker(size, size, knob)), FIXED) for knob in (small, small - 1))
    assert [type(part) for part in formed.children()] == [nn.Linear]
    assert len(list(parts.children())) > 1


def test_a_stage_that_is_a_product_of_parameters_is_held_by_none() -> None:
    transform = build(get_transform("tensor_train"), 48)
    assert held_stages(transform, "N,OM") is None
    assert [item.parameter is not None for item in held_stages(transform, "N,M,O") or []] == [True] * 3


def test_a_lowered_student_has_its_outputs_parameters_mode_and_hooks() -> None:
    model = us.create_model("wrn_10_1")
    student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5)).eval()
    calls: list[str] = []
    student.get_submodule("stage1.0.conv1").register_forward_hook(lambda *_: calls.append("called"))
    plain = us.lower(student)
    assert list(us.stand_ins(plain)) == []
    assert len(list(us.stand_ins(student))) > 0
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(plain(x), student(x))
    assert calls == ["called"] * 2
    assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in student.parameters())
    assert not any(module.training for module in plain.modules())


def test_a_lowered_linear_layer_has_its_weight_and_bias_and_a_convolution_has_none() -> None:
    layer = Linear(build(get_transform("shuffle"), 16), values(24))
    plain: Any = lowered(layer)
    torch.testing.assert_close(plain.weight, layer.weight)
    assert layer.bias is not None
    assert torch.equal(plain.bias, layer.bias)
    assert lowered(Linear(build(get_transform("low_rank"), 16))).bias is None
    convolution: Any = lowered(Conv(get_transform("low_rank")(64, 64, 4), STRIDED))
    with pytest.raises(AttributeError, match="weight"):
        _ = convolution.weight


def test_a_layer_whose_weight_is_read_stays_one_that_has_it() -> None:
    network = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    student = us.substitute(network, us.plan(network, "low_rank", ratio=0.8)).eval()
    plain = us.lower(student)
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(plain(x), student(x))


def test_stages_of_groups_are_grouped_convolutions_or_run_group_by_group_or_are_formed_for_a_file() -> None:
    def grouped(name: str, order: str = "auto") -> Layer:
        transform = get_transform(name)
        layer = GroupedConv([Conv(transform(64 * 9, 64, 4), SQUARE) for _ in range(3)], torch.zeros(192))
        layer.execution = Execution(order=order)
        return layer

    plain: Any = lowered(grouped("low_rank"))
    assert [(part.groups, part.kernel_size) for part in plain] == [(3, (3, 3)), (3, (1, 1))]
    plain = lowered(grouped("shuffle"))
    assert [part.groups for part in plain if isinstance(part, nn.Conv2d)] == [12, 12]
    pieces = next(lowered(grouped("pivoted", "V,A")).children())
    assert isinstance(pieces, Split)
    assert len(pieces.parts) == 3
    assert isinstance(next(lowered(grouped("pivoted", "V,A"), FILE).children()), Computed)


def test_pivoted_is_plain_and_in_a_file_merged() -> None:
    layer = Conv(get_transform("pivoted")(64 * 9, 64, 8), SQUARE)
    assert [type(part).__name__ for part in lowered(layer).children()] == ["Conv2d", "Following"]
    in_the_graph: Any = lowered(layer, FILE)
    assert in_the_graph.execution.order == "V,U"


def test_a_lowered_network_is_refused_by_files_that_cannot_name_its_layers(tmp_path: Path) -> None:
    class Pretrained(nn.Sequential):
        def save_pretrained(self, folder: object) -> None:
            raise AssertionError(folder)

    model = Pretrained(nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 4))
    plain: Any = us.lower(us.substitute(model, us.plan(model, "low_rank", knob=4)))
    with pytest.raises(RuntimeError, match="save_pretrained writes of Pretrained"):
        plain.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="holds stand-ins that were lowered"):
        us.save(plain, tmp_path / "plain.safetensors")
    with pytest.raises(ValueError, match="holds stand-ins already"):
        us.compress(plain, ratio=0.5, data=[torch.zeros(2, 8)])


def test_an_encoder_layer_calls_what_was_lowered() -> None:
    network = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    student = us.substitute(network, us.plan(network, "low_rank", knob=4, include=["linear1", "linear2"]))
    plain: Any = us.lower(student.eval())
    assert plain.activation_relu_or_gelu == 0
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), student(x))


def test_the_weight_of_a_lowered_look_alike_is_stored_as_it_stores_it() -> None:
    class Conv1D(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nf = 24
            self.weight, self.bias = nn.Parameter(torch.randn(16, 24)), nn.Parameter(torch.zeros(24))

        def forward(self, x: Tensor) -> Tensor:
            size_out = (*x.size()[:-1], self.nf)
            return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(size_out)

    found = dense_map(Conv1D())
    assert found is not None
    assert found.transposed
    layer = Linear(get_transform("low_rank")(16, 24, 4), shell=Shell.of(found))
    plain: Any = lowered(layer)
    assert plain.weight.shape == layer.weight.shape == (16, 24)
    torch.testing.assert_close(plain.weight, layer.weight)
