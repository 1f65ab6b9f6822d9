"""The dense networks: their sizes, their costs, and the few choices that set them apart."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import understudy as us
from understudy.networks import nets, smaller
from understudy.networks.nets.darts import (
    DARTS_V2,
    Darts,
    DartsCell,
    DepthwiseSeparable,
    FactorizedReduction,
)
from understudy.networks.nets.drop_path import DropPath
from understudy.networks.nets.resnet import BasicBlock, BottleneckResNet, CifarResNet
from understudy.networks.nets.wide_resnet import WideBlock, WideResNet


def on_meta(name: str, **options: Any) -> tuple[nn.Module, Tensor]:
    with torch.device("meta"):
        return nets.build(name, **options).eval(), torch.empty(1, *nets.input_shape(name))


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("wrn_16_1", {}, 175_066),
        ("wrn_16_2", {}, 691_674),
        ("wrn_28_10", {}, 36_479_194),
        ("wrn_50_2", {}, 68_883_240),
        ("resnet20", {}, 269_722),
        ("resnet56", {}, 853_018),
        ("darts", {}, 3_349_342),
        ("darts", {"auxiliary": True}, 3_825_768),
    ],
)
def test_parameter_count_is_the_published_one(name: str, options: dict[str, Any], expected: int) -> None:
    model, _image = on_meta(name, **options)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


@pytest.mark.parametrize(
    ("name", "expected", "published"),
    [
        ("wrn_28_10", 5_243_328_768, "5.25"),
        ("wrn_50_2", 11_398_021_120, "11.4"),
        ("darts", 528_359_040, "0.54"),
    ],
)
def test_published_mult_adds_come_out_once_each_rectified_value_counts_as_one(
    name: str, expected: int, published: str
) -> None:
    def two_flops_each(input_shape: tuple[int, ...], **_options: Any) -> int:
        return 2 * math.prod(input_shape)

    model, image = on_meta(name)
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.relu: two_flops_each}) as counter:
        model(image)
    rectified = counter.get_flop_counts()["Global"][torch.ops.aten.relu] // 2
    total = counter.get_total_flops() // 2
    assert total - rectified == expected  # convolutions and head alone
    assert f"{total / 1e9:.2f}".startswith(published)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("wrn_28_10", {}, {"stage1": (160, 32, 32), "stage2": (320, 16, 16), "stage3": (640, 8, 8)}),
        ("resnet20", {}, {"layer1": (16, 32, 32), "layer2": (32, 16, 16), "layer3": (64, 8, 8)}),
        ("wrn_50_2", {}, {"layer1": (256, 56, 56), "layer3": (1024, 14, 14), "layer4": (2048, 7, 7)}),
        ("darts", {"cells": 6}, {"stem": (108, 32, 32), "cells.2": (288, 16, 16), "cells.4": (576, 8, 8)}),
    ],
)
def test_each_stage_and_the_head_have_their_shapes(
    name: str, options: dict[str, Any], expected: dict[str, tuple[int, int, int]]
) -> None:
    model, image = on_meta(name, classes=7, **options)
    seen: dict[str, tuple[int, ...]] = {}
    for path in expected:

        def note(_module: nn.Module, _inputs: Any, output: Tensor, path: str = path) -> None:
            seen[path] = tuple(output.shape[1:])

        model.get_submodule(path).register_forward_hook(note)
    assert model(image).shape == (1, 7)
    assert seen == expected


def test_training_reaches_every_parameter_and_leaves_a_deepcopy_alone() -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 3, 32, 32)
    for model in (
        WideResNet(10, 1),
        CifarResNet(8),
        BottleneckResNet((1, 1, 1, 1), width=1),
        Darts(channels=2, cells=3),
    ):
        twin = copy.deepcopy(model).eval()
        before = twin(images)
        model.train()(images).square().sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        assert all(parameter.grad is None for parameter in twin.parameters())
        assert torch.equal(twin(images), before)


def test_wide_block_shortcut_reads_the_activated_input() -> None:
    torch.manual_seed(0)
    block = WideBlock(4, 8, stride=2).eval()
    assert block.shortcut is not None
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 6, 6)
    torch.testing.assert_close(block(x), block.shortcut(block.norm1(x).relu()))


def test_wide_block_has_a_shortcut_convolution_only_where_the_shape_changes() -> None:
    assert WideBlock(4, 4, stride=1).shortcut is None
    assert WideBlock(4, 8, stride=1).shortcut is not None
    assert WideBlock(4, 4, stride=2).shortcut is not None


def test_basic_block_shortcut_takes_every_second_pixel_between_channels_of_zeros() -> None:
    block = BasicBlock(2, 4, stride=2).eval()
    nn.init.zeros_(block.conv2.weight)
    x = torch.rand(1, 2, 4, 4)
    y = block(x)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2])
    assert not y[:, [0, 3]].any()


def test_convolution_weights_have_the_variance_of_their_fan_out() -> None:
    torch.manual_seed(0)
    weight = WideBlock(64, 128, stride=1).conv1.weight
    assert weight.var().item() == pytest.approx(2 / (9 * 128), rel=0.03)


def test_wide_resnet_exports() -> None:
    torch.manual_seed(0)
    model = nets.build("wrn_16_1").eval()
    images = torch.randn(2, 3, 32, 32)
    exported = torch.export.export(model, (images,)).module()
    torch.testing.assert_close(exported(images), model(images))


def test_torchvision_weights_load_as_they_are_and_give_the_same_output() -> None:
    from torchvision.models import wide_resnet50_2
    from torchvision.models.resnet import Bottleneck, ResNet

    with torch.device("meta"):
        ours, theirs = nets.build("wrn_50_2").state_dict(), wide_resnet50_2().state_dict()
    assert list(ours) == list(theirs)
    assert all(ours[key].shape == theirs[key].shape for key in theirs)

    torch.manual_seed(0)
    reference = ResNet(Bottleneck, [1, 2, 1, 1], num_classes=10, width_per_group=128)
    images = torch.randn(4, 3, 48, 48)
    reference(images)  # moves the running statistics away from 0 and 1
    model = BottleneckResNet((1, 2, 1, 1), width=2, classes=10)
    model.load_state_dict(reference.state_dict())
    torch.testing.assert_close(model.eval()(images), reference.eval()(images))


def test_public_cifar_weights_without_batch_counters_load() -> None:
    stored = {key: value for key, value in CifarResNet(8).state_dict().items() if "num_batches" not in key}
    CifarResNet(8).load_state_dict(dict(stored))


def test_factorized_reduction_reads_two_offset_grids() -> None:
    torch.manual_seed(0)
    reduction = FactorizedReduction(2, 4).eval()
    image = torch.ones(1, 2, 4, 4, requires_grad=True)
    reduction(image).sum().backward()
    assert image.grad is not None
    touched = image.grad[0, 0] != 0
    assert touched[::2, ::2].all()
    assert touched[1::2, 1::2].all()
    assert touched.sum() == 8


def test_darts_operations_are_those_of_its_genotype() -> None:
    cells = Darts(channels=2, cells=3).cells
    kinds = [[type(operation) for operation in cell.get_submodule("operations").children()] for cell in cells]
    pool, skip, separable_twice, dilated = nn.MaxPool2d, nn.Identity, nn.Sequential, DepthwiseSeparable
    assert kinds[0] == [separable_twice] * 5 + [skip, skip, dilated]
    assert kinds[1] == kinds[2] == [pool, pool, skip, pool, pool, skip, skip, pool]


def test_auxiliary_head_answers_only_in_training() -> None:
    images = torch.randn(3, 3, 32, 32)
    model = Darts(channels=1, cells=3, classes=7, auxiliary=True)
    outputs = model.train()(images)
    assert isinstance(outputs, tuple)
    assert [output.shape for output in outputs] == [(3, 7), (3, 7)]
    assert isinstance(model.eval()(images), Tensor)
    plain = Darts(channels=1, cells=3)
    assert isinstance(plain.train()(images), Tensor)


def test_auxiliary_head_reads_the_second_reduction() -> None:
    model = Darts(channels=1, cells=6, auxiliary=True).train()
    _logits, auxiliary_logits = model(torch.randn(2, 3, 32, 32))
    auxiliary_logits.sum().backward()
    reached = [any(parameter.grad is not None for parameter in cell.parameters()) for cell in model.cells]
    assert reached == [True, True, True, True, True, False]


def test_drop_path_drops_whole_samples_and_keeps_the_expectation() -> None:
    torch.manual_seed(0)
    dropped = DropPath(0.25)(torch.ones(20_000, 2, 1, 1))
    torch.testing.assert_close(dropped[dropped > 0], torch.full_like(dropped[dropped > 0], 1 / 0.75))
    assert torch.equal(dropped[:, 0], dropped[:, 1])
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)


def test_drop_path_leaves_identity_skips_alone() -> None:
    torch.manual_seed(0)
    cell = DartsCell(DARTS_V2.normal, 3, 3, 2, False, False, drop_path=1 - 1e-9)
    x = torch.randn(2, 3, 4, 4)
    node2, node3, node4, node5 = cell(x, x).split(2, dim=1)
    assert not torch.cat([node2, node3]).any()
    assert torch.equal(node4, cell.preprocess0(x))
    assert torch.equal(node5, cell.preprocess0(x))


def set_drop_path(model: nn.Module, probability: float) -> None:
    found = [module for module in model.modules() if isinstance(module, DropPath)]
    assert found
    for module in found:
        module.probability = probability


def test_drop_path_acts_in_training_and_not_in_eval() -> None:
    torch.manual_seed(0)
    model = Darts(channels=2, cells=3)
    images = torch.randn(4, 3, 8, 8)
    never_dropped = model.eval()(images)
    set_drop_path(model, 0.5)
    assert torch.equal(model(images), never_dropped)
    model.train()
    assert not torch.equal(model(images), model(images))
    set_drop_path(model, 0.0)
    assert torch.equal(model(images), model(images))


def test_common_names_are_listed_and_known() -> None:
    expected = {"darts", "resnet20", "resnet56", "wrn_16_1", "wrn_16_2", "wrn_28_10", "wrn_40_2", "wrn_50_2"}
    assert set(nets.names()) == expected
    assert all(nets.is_builtin(name) for name in nets.names())
    assert nets.input_shape("wrn_50_2") == (3, 224, 224)


def test_any_legal_wide_resnet_is_known_by_its_name() -> None:
    model, _image = on_meta("wrn_40_4", classes=100)
    assert isinstance(model, WideResNet)
    assert (len(model.stage3), model.head.in_features, model.head.out_features) == (6, 256, 100)
    assert nets.is_builtin("wrn_10_3")
    assert nets.input_shape("wrn_10_3") == (3, 32, 32)


def test_a_width_may_be_a_fraction() -> None:
    model, image = on_meta("wrn_10_0.57")
    assert isinstance(model, WideResNet)
    assert (model.stem.out_channels, model.head.in_features) == (9, 36)
    assert model(image).shape == (1, 10)
    wider, _image = on_meta("wrn_10_1.3")
    assert isinstance(wider, WideResNet)
    assert (wider.stem.out_channels, wider.head.in_features) == (16, 83)
    narrow, image = on_meta("wrn_50_0.5")
    assert isinstance(narrow, BottleneckResNet)
    assert (narrow.conv1.out_channels, narrow.fc.in_features) == (32, 1024)
    assert narrow(image).shape == (1, 1000)
    assert nets.input_shape("wrn_50_0.5") == (3, 224, 224)
    assert parameters(on_meta("wrn_50_1")[0]) == 25_557_032  # torchvision's resnet50
    small, _image = on_meta("darts_12")
    assert isinstance(small, Darts)
    assert small.head.in_features == 16 * 12


@pytest.mark.parametrize(
    ("name", "params", "classes"),
    [
        ("wrn_10_2", 24_000, 10),
        ("wrn_16_2", 100_000, 100),
        ("darts", 490_000, 10),
        ("wrn_50_2", 4_350_000, 1000),
    ],
)
def test_a_narrower_network_is_the_widest_that_fits(name: str, params: int, classes: int) -> None:
    found = smaller.narrower(name, params, classes)
    count = parameters(on_meta(found, classes=classes)[0])
    prefix, _, width = found.rpartition("_")
    wider = f"{prefix}_{int(width) + 1}" if name == "darts" else f"{prefix}_{float(width) + 0.001:.6g}"
    assert count <= params < parameters(on_meta(wider, classes=classes)[0])
    assert count > 0.9 * params


def test_a_shallower_network_has_half_of_the_blocks_and_mult_adds_are_counted_on_the_image() -> None:
    found = smaller.shallower("wrn_16_2", 24_000)
    assert found == smaller.narrower("wrn_10_2", 24_000)
    assert smaller.shallower("wrn_28_1", 10**9) == "wrn_16_1"
    image = (3, 8, 8)
    by_work = smaller.shallower("wrn_16_1", 300_000, image=image)
    wider = f"wrn_10_{float(by_work.rpartition('_')[2]) + 0.001:.6g}"
    counts = [us.cost(us.create_model(name), (1, *image)).mult_adds for name in (by_work, wider)]
    assert counts[0] is not None
    assert counts[1] is not None
    assert counts[0] <= 300_000 < counts[1]
    with pytest.raises(ValueError, match=r"60 mult-adds are below what a narrower wrn_10_1 reaches"):
        smaller.shallower("wrn_16_1", 60, image=image)
    for name in ("wrn_10_2", "wrn_50_2", "darts", "resnet20", "timm:resnet18"):
        with pytest.raises(ValueError, match="has no shallower form"):
            smaller.shallower(name, 1000)


def test_a_network_that_fits_is_its_own_narrower_form_and_some_have_none() -> None:
    assert smaller.narrower("wrn_10_2", 303_706) == "wrn_10_2"
    with pytest.raises(ValueError, match=r"60 parameters are below .* wrn_10_2 reaches: [\d,]+ to 303,706"):
        smaller.narrower("wrn_10_2", 60)
    for name in ("resnet20", "timm:resnet18"):
        with pytest.raises(ValueError, match="has no narrower form"):
            smaller.narrower(name, 1000)


@pytest.mark.parametrize(
    "name",
    [
        "", "wrn_17_2", "wrn_28_0", "wrn_028_10", "wrn_50_4", "resnet18", "Darts", "wrn_28_0.0",
        "wrn_28_2.50", "wrn_28_.5", "darts_0", "darts_1.5", "wrn_50_2.5",
    ],
)  # fmt: skip
def test_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    assert not nets.is_builtin(name)
    with pytest.raises(KeyError, match="legal are darts, resnet20"):
        nets.build(name)
    with pytest.raises(KeyError, match="wrn_DEPTH_WIDTH"):
        nets.input_shape(name)


def test_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match="colours"):
        nets.build("wrn_16_1", colours=3)
    with pytest.raises(TypeError, match="depth"):
        nets.build("wrn_16_1", depth=28)


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        (WideResNet, {"depth": 17, "width": 2}, r"depth 17 is not 6n \+ 4 .* 10, 16, 22"),
        (WideResNet, {"depth": 4, "width": 2}, "depth 4 "),
        (WideResNet, {"depth": 16, "width": 0}, "width 0 "),
        (CifarResNet, {"depth": 18}, r"depth 18 is not 6n \+ 2 .* 8, 14, 20"),
        (CifarResNet, {"depth": 2}, "depth 2 "),
        (BottleneckResNet, {"width": 0}, "width 0 "),
        (BottleneckResNet, {"blocks": (3, 4, 0, 3)}, r"blocks \(3, 4, 0, 3\)"),
        (Darts, {"channels": 0}, "channels 0 "),
        (Darts, {"cells": 2}, r"cells 2 .* from 3 up"),
    ],
)
def test_illegal_size_is_refused_by_its_value(
    network: type[nn.Module], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        network(**options)


@pytest.mark.parametrize("probability", [-0.1, 1.0, math.nan])
def test_illegal_drop_path_probability_is_refused_at_once_and_when_ramped(probability: float) -> None:
    with pytest.raises(ValueError, match=r"not in \[0, 1\)"):
        Darts(drop_path=probability)
    with pytest.raises(ValueError, match=r"not in \[0, 1\)"):
        set_drop_path(Darts(channels=1, cells=3), probability)


def test_darts_refuses_an_image_that_does_not_halve_twice() -> None:
    with pytest.raises(ValueError, match="30 × 32 is not a multiple of 4"):
        Darts(channels=1, cells=3)(torch.randn(1, 3, 30, 32))


@pytest.mark.parametrize("name", ["wrn_10_1", "resnet20"])
@torch.no_grad()
def test_a_hook_keeps_what_its_module_gave(name: str) -> None:
    model = us.create_model(name).eval()
    kept: list[tuple[Tensor, Tensor]] = []
    for module in model.modules():
        module.register_forward_hook(lambda _module, _inputs, out: kept.append((out, out.clone())))
    model(torch.randn(2, 3, 16, 16))
    assert len(kept) == len(list(model.modules()))
    assert all(torch.equal(now, then) for now, then in kept)
