"""Attention transfer and distillation against hand computations; taps; what is touched and what is not."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from understudy.distil.attention import AttentionTransfer, attention_map, distillation_loss, find_taps

TAPS = ["stage1", "stage2", "stage3"]


def network(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return us.create_model("wrn_10_1", classes=10)


def images(seed: int = 0) -> Tensor:
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def activations(model: nn.Module, x: Tensor, paths: list[str]) -> list[Tensor]:
    """What the modules give, by hooks of the test's own."""
    found: dict[str, Tensor] = {}
    handles = [
        model.get_submodule(path).register_forward_hook(lambda _, __, y, path=path: found.update({path: y}))
        for path in paths
    ]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return [found[path] for path in paths]


def test_an_attention_map_is_the_mean_square_over_channels_of_unit_length() -> None:
    activation = torch.tensor([[[[1.0, 2.0]], [[3.0, 0.0]]], [[[0.0, 1.0]], [[0.0, 7.0]]]])  # (2, 2, 1, 2)
    first = torch.tensor([(1 + 9) / 2, 4 / 2])
    expected = torch.stack([first / (25 + 4) ** 0.5, torch.tensor([0.0, 1.0])])
    torch.testing.assert_close(attention_map(activation), expected)


@pytest.mark.parametrize("taps", [TAPS, TAPS[:2], TAPS[2:]])
@pytest.mark.parametrize("beta", [1000.0, 1.5])
def test_the_loss_is_that_of_a_hand_computation(taps: list[str], beta: float) -> None:
    student, teacher, x = network(1), network(2), images()
    expected = 0.0
    mine = activations(copy.deepcopy(student), x, taps)
    theirs = activations(copy.deepcopy(teacher).eval(), x, taps)
    for ours, wanted in zip(mine, theirs, strict=True):
        maps = []
        for activation in (ours, wanted):
            squares = (activation**2).mean(dim=1).reshape(len(x), -1)
            maps.append(squares / (squares**2).sum(dim=1, keepdim=True).sqrt())
        expected += float(((maps[0] - maps[1]) ** 2).mean())
    transfer = AttentionTransfer(student, teacher, taps=taps, beta=beta)
    student(x)
    loss, output = transfer(x)
    assert float(loss.detach()) == pytest.approx(beta * 3 / len(taps) * expected, rel=1e-4)
    assert expected > 0
    torch.testing.assert_close(output, teacher(x))


def test_identical_networks_have_no_loss() -> None:
    student = network(1).eval()
    transfer = AttentionTransfer(student, copy.deepcopy(student), taps=TAPS)
    student(images())
    assert float(transfer(images())[0].detach()) == 0


def test_the_gradient_reaches_the_student_only() -> None:
    student, teacher = network(1), network(2)
    transfer = AttentionTransfer(student, teacher, taps=TAPS)
    student(images())
    transfer(images())[0].backward()
    for path, parameter in student.named_parameters():
        after_the_taps = path.startswith(("norm.", "head."))
        assert (parameter.grad is None) == after_the_taps, path
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_the_teacher_is_frozen_in_evaluation_mode_and_unchanged() -> None:
    student, teacher = network(1), network(2).train()
    before = copy.deepcopy(teacher.state_dict())
    transfer = AttentionTransfer(student, teacher, taps=TAPS)
    student(images())
    _, output = transfer(images())
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert not output.requires_grad
    assert student.training
    assert all(parameter.requires_grad for parameter in student.parameters())
    for key, tensor in teacher.state_dict().items():
        assert torch.equal(tensor, before[key]), key


def test_a_substituted_student_is_tapped_by_the_same_paths() -> None:
    teacher = network(2)
    plan = us.plan(teacher, "low_rank", ratio=0.2, example=images())
    student = us.substitute(network(1), plan, init="fresh")
    transfer = AttentionTransfer(student, teacher, example=images())
    assert list(transfer.taps) == TAPS
    student(images())
    assert float(transfer(images())[0].detach()) > 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wrn_10_1", TAPS),
        ("wrn_28_10", TAPS),
        ("wrn_50_2", ["layer1", "layer2", "layer3", "layer4"]),
        ("darts", ["cells.5", "cells.12", "cells.19"]),
        ("torchvision:resnet18", ["layer1", "layer2", "layer3", "layer4"]),
        ("timm:efficientnet_b0", ["blocks.0", "blocks.1", "blocks.2", "blocks.4", "blocks.6"]),
    ],
)
def test_taps_are_found_where_the_stages_end(name: str, expected: list[str]) -> None:
    if ":" in name:
        pytest.importorskip(name.partition(":")[0])
    with torch.device("meta"):
        model = us.create_model(name)
    assert find_taps(model, us.example_input(name, model)) == expected


def test_a_network_without_blocks_of_images_must_name_its_taps() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Linear(8, 2))
    with pytest.raises(ValueError, match="name the taps"):
        find_taps(model, images())


@pytest.mark.parametrize("lacks", ["student", "teacher"])
def test_a_wrong_tap_is_named_and_leaves_no_hook(lacks: str) -> None:
    student, teacher = network(1), network(2)
    extra = teacher if lacks == "student" else student
    extra.add_module("stage4", nn.Identity())
    with pytest.raises(ValueError, match="has no module 'stage4' to tap"):
        AttentionTransfer(student, teacher, taps=["stage1", "stage4"])
    assert not any(module._forward_hooks for model in (student, teacher) for module in model.modules())


def test_no_taps_and_nothing_to_find_them_with_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one tap"):
        AttentionTransfer(network(1), network(2), taps=[])
    with pytest.raises(ValueError, match="give the taps, or an example"):
        AttentionTransfer(network(1), network(2))


def test_close_removes_the_hooks() -> None:
    student, teacher = network(1), network(2)
    transfer = AttentionTransfer(student, teacher, taps=TAPS)
    assert sum(len(module._forward_hooks) for module in student.modules()) == 3
    transfer.close()
    assert not any(module._forward_hooks for model in (student, teacher) for module in model.modules())


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_distillation_is_the_divergence_that_torch_computes(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 5, 10, generator=generator, dtype=torch.float64)
    expected = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=teacher / temperature),
        torch.distributions.Categorical(logits=student / temperature),
    )
    loss = distillation_loss(student, teacher, temperature)
    torch.testing.assert_close(loss, temperature**2 * expected.mean())
    own = F.kl_div(
        (student / temperature).log_softmax(1), (teacher / temperature).softmax(1), reduction="sum"
    )
    torch.testing.assert_close(loss, temperature**2 * own / len(student))
    assert float(distillation_loss(teacher, teacher, temperature)) == pytest.approx(0, abs=1e-12)
