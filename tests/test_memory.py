"""Training with a stand-in needs about the memory of the dense layer; recomputing changes no value."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from understudy.bench.worker import peak_bytes
from understudy.layers import stand_ins

TRANSFORMS = us.list_transforms()
SCALES = (0.0, 0.2, 0.6)
LIMIT = 1.5  # times dense
IMAGES, LABELS = torch.zeros(16, 3, 32, 32), torch.zeros(16, dtype=torch.int64)

# A tracer would take most of the time here, and what runs is measured elsewhere.


class Bottlenecks(nn.Module):
    """Pointwise convolutions and linear layers, with activations that keep nothing of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 4, stride=4)
        self.pointwise = nn.ModuleList(nn.Conv2d(32, 32, 1) for _ in range(4))
        self.linear = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for layer in self.pointwise:
            x = torch.tanh(layer(x))
        x = x.flatten(2).mT  # (B, pixels, 32)
        for layer in self.linear:
            x = torch.tanh(layer(x))
        logits: Tensor = self.head(x.mean(1))
        return logits


def wide_resnet() -> nn.Module:
    return us.create_model("wrn_10_2")


NETWORKS = (wide_resnet, Bottlenecks)


def peak(model: nn.Module) -> int:
    """Of two steps of SGD with momentum."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def steps() -> None:
        for _ in range(2):
            loss = F.cross_entropy(model(IMAGES), LABELS)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

    return peak_bytes(steps, [IMAGES, LABELS, *model.parameters(), *model.buffers()])


def student_of(model: nn.Module, transform: str, scale: float) -> nn.Module:
    plan = us.plan(model, transform, scale=scale, example=IMAGES[:1])
    return us.substitute(model, plan, init="fresh")


@pytest.fixture(scope="module")
def dense_peaks() -> dict[Callable[[], nn.Module], int]:
    return {network: peak(network()) for network in NETWORKS}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_training_step_needs_at_most_half_as_much_again_as_dense(
    transform: str,
    network: Callable[[], nn.Module],
    dense_peaks: dict[Callable[[], nn.Module], int],
) -> None:
    for scale in SCALES:
        ratio = peak(student_of(network(), transform, scale)) / dense_peaks[network]
        assert ratio <= LIMIT, f"{transform} at {scale}: {ratio:.2f} times dense"


def outcome(model: nn.Module, images: Tensor, *, half: bool) -> list[Tensor]:
    """The logits, then the gradient of every parameter."""
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits = model(images)
    F.cross_entropy(logits.float(), LABELS[: len(images)]).backward()
    return [logits, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_recomputing_changes_no_bit(transform: str, half: bool) -> None:
    recomputing = student_of(Bottlenecks(), transform, 0.2)
    keeping = copy.deepcopy(recomputing)
    for _, layer in stand_ins(keeping):
        layer.execution = us.Execution(recompute=False)
    images = torch.randn(4, *IMAGES.shape[1:], generator=torch.Generator().manual_seed(1))
    ours, theirs = (outcome(model, images, half=half) for model in (recomputing, keeping))
    assert len(ours) == len(theirs) == 1 + len(list(keeping.parameters()))
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)


def test_a_student_in_training_mode_has_functional_gradients() -> None:
    student = student_of(Bottlenecks(), "acdc", 0.2)
    parameters = {name: parameter.detach() for name, parameter in student.named_parameters()}

    def loss(values: dict[str, Tensor]) -> Tensor:
        logits = torch.func.functional_call(student, values, (IMAGES + 1,))
        return F.cross_entropy(logits, LABELS)

    found = torch.func.grad(loss)(parameters)
    expected = outcome(student, IMAGES + 1, half=False)[1:]
    for gradient, wanted in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(gradient, wanted)
