"""Attention transfer and distillation against hand computations; taps; what is touched and what is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from understudy.distil.attention import AttentionTransfer, attention_map, find_taps
from understudy.distil.distillation import distillation_loss

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
    torch.testing.assert_close(output, teacher.eval()(x))


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


def test_the_teacher_answers_in_evaluation_mode_and_is_left_as_it_was() -> None:
    student, teacher = network(1), network(2).train()
    teacher.get_submodule("stage1").eval()
    teacher.get_parameter("head.weight").requires_grad_(False)
    modes = [module.training for module in teacher.modules()]
    flags = [parameter.requires_grad for parameter in teacher.parameters()]
    before = copy.deepcopy(teacher.state_dict())
    with AttentionTransfer(student, teacher, taps=TAPS) as transfer:
        student(images())
        _, output = transfer(images())
        student(images())
        with pytest.raises(RuntimeError, match="channels"):  # and where it fails, too
            transfer(images()[:, :2])
    assert not output.requires_grad
    assert modes == [module.training for module in teacher.modules()]
    assert flags == [parameter.requires_grad for parameter in teacher.parameters()]
    for key, tensor in teacher.state_dict().items():
        assert torch.equal(tensor, before[key]), key
    assert not any(module._forward_hooks for model in (student, teacher) for module in model.modules())


def test_before_the_student_has_run_it_says_so() -> None:
    student, teacher = network(1), network(2)
    transfer = AttentionTransfer(student, teacher, taps=TAPS)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nothing came out of the student at 'stage1': run it"):
            transfer(images())
        student(images())
        transfer(images())  # what it saw counts once


class Tokens(nn.Module):
    """A small encoder that takes named inputs and gives what `kind` says."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.block = Wrapped(kind)
        self.kind = kind

    def forward(self, ids: Tensor, scale: Tensor) -> dict[str, Tensor]:
        found = self.block(self.embed(ids) * scale)
        return {"logits": found.sum() if isinstance(found, Tensor) else torch.zeros(())}


class Wrapped(nn.Module):
    """A linear layer whose output comes as a tensor, a tuple or a mapping."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.kind = kind

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x)
        return {"tensor": y, "tuple": (y, None), "mapping": {"none": None, "state": y}, "text": "y"}[
            self.kind
        ]


@pytest.mark.parametrize("kind", ["tensor", "tuple", "mapping"])
@pytest.mark.parametrize("form", [dict, tuple])
def test_tokens_have_a_map_in_any_form_of_batch_and_output(kind: str, form: type) -> None:
    torch.manual_seed(0)
    student, teacher = Tokens(kind), Tokens("tensor")
    named = {"ids": torch.arange(10).reshape(2, 5), "scale": torch.tensor(2.0)}
    batch: Any = named if form is dict else tuple(named.values())
    transfer = AttentionTransfer(student, teacher, taps=["block"], beta=1.0, example=batch)
    student(**named)
    loss, output = transfer(batch)
    maps = []
    for model in (student, teacher):
        squares = (model.block.linear(model.embed(named["ids"]) * 2) ** 2).mean(dim=2)  # (B, T)
        maps.append(squares / squares.norm(dim=1, keepdim=True))
    torch.testing.assert_close(loss, 3 * F.mse_loss(*maps))
    loss.backward()
    assert output.keys() == {"logits"}


def test_what_has_no_map_is_named() -> None:
    with pytest.raises(ValueError, match=r"an activation of \(2, 3\) has no map"):
        attention_map(torch.zeros(2, 3))
    named = {"ids": torch.zeros(1, 2, dtype=torch.long), "scale": torch.tensor(1.0)}
    student = Tokens("text")
    transfer = AttentionTransfer(student, Tokens("tensor"), taps=["block"])
    student(**named)
    with pytest.raises(ValueError, match="the student at 'block' gave a str without a tensor"):
        transfer(named)
    shorter = Tokens("tensor")
    transfer = AttentionTransfer(shorter, Tokens("tensor"), taps=["block"])
    shorter(named["ids"][:, :1], named["scale"])
    with pytest.raises(ValueError, match=r"the student's map is \(1, 1\), the teacher's \(1, 2\)"):
        transfer(named)


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


def test_distillation_is_a_mean_over_pixels() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 3, 10, 4, 5, generator=generator, dtype=torch.float64)
    mine, theirs = (output.movedim(1, -1).reshape(-1, 10) for output in (student, teacher))
    torch.testing.assert_close(distillation_loss(student, teacher, 4.0), distillation_loss(mine, theirs, 4.0))


@pytest.mark.parametrize("shape", [(6,), (2, 6, 9)])
def test_outputs_that_do_not_say_which_axis_is_the_classes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r'which axis is that of the classes.*distance="outputs"'):
        distillation_loss(torch.zeros(shape), torch.zeros(shape), 1.0)
