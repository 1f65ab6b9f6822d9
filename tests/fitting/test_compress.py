"""Compression: within the budget, nearer to the original than a fit to the weights alone, nothing changed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_calibrate import Small, images, small
from torch import Tensor, nn

import understudy as us
from snapshots import snapshot
from understudy.fitting.attempts import Attempts
from understudy.fitting.inputs import Batch
from understudy.fitting.shifts import Shift, find_shifts

# The others keep the contract that a fit in a metric is never worse there, and take long.
NAMES = [name for name in us.list_transforms() if us.get_transform(name).is_for_auto and name != "dense"]
NAMES += ["low_rank", "acdc"]


class Trained(nn.Module):
    """A little convolutional network for images with structure, so that layers see correlated inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(16)
        self.first = nn.Conv2d(16, 24, 3, padding=1, stride=2, bias=False)
        self.first_norm = nn.BatchNorm2d(24)
        self.second = nn.Conv2d(24, 24, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(24)
        self.hidden = nn.Linear(24, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem_norm(self.stem(x)))
        x = F.relu(self.first_norm(self.first(x)))
        x = F.relu(self.second_norm(self.second(x))).mean(dim=(2, 3))
        logits: Tensor = self.head(F.relu(self.hidden(x)))
        return logits


def waves(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images of waves in one of four directions, with noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 4, (count,), generator=generator)
    angle = labels * torch.pi / 4
    phase = 6.28 * torch.rand(count, 3, generator=generator)
    grid = torch.linspace(0, 9, 12)
    along = angle.cos()[:, None, None] * grid[:, None] + angle.sin()[:, None, None] * grid
    clean = torch.sin(along[:, None] + phase[:, :, None, None])
    return clean + 0.5 * torch.randn(count, 3, 12, 12, generator=generator), labels


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    """Trained for a moment, the same on every run."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Trained()
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    x, y = waves(512, seed=0)
    for _ in range(6):
        for part in torch.arange(512).split(64):
            optimiser.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()
            optimiser.step()
    return model.eval()


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 1.1 * x


@pytest.mark.parametrize(
    "shapes", [[(1, 4)], [(1, 4, 6)], [(1, 4, 6), (1, 5, 6), (1, 4, 6)], [(1, 4), (1, 5)]]
)
def test_errors_are_relative_where_no_batch_has_two_samples(shapes: list[tuple[int, ...]]) -> None:
    generator = torch.Generator().manual_seed(0)
    data = [torch.randn(shape, generator=generator) for shape in shapes]
    small, large = (
        Attempts(nn.Identity(), [Batch(factor * x, len(x)) for x in data], None) for factor in (1, 100)
    )
    assert 0.01 <= small.error_of(Scaled()) < 0.02
    assert large.error_of(Scaled()) == pytest.approx(small.error_of(Scaled()))
    assert large.spread > 1000


@torch.no_grad()
def error(model: nn.Module, student: nn.Module) -> float:
    """Of the outputs, relative, on inputs that nobody has seen."""
    x, _ = waves(256, seed=9)
    wanted = model(x)
    return float((student(x) - wanted).square().sum() / (wanted - wanted.mean(0)).square().sum())


@pytest.mark.parametrize("transform", NAMES)
def test_a_student_is_within_the_budget_and_nearer_than_a_fit_to_the_weights(
    transform: str, trained: nn.Module
) -> None:
    x, _ = waves(256, seed=1)
    before = snapshot(trained)
    done = us.compression(trained, transform, ratio=0.4, data=x.split(64))
    assert snapshot(trained) == before
    assert us.cost(done.student, x[:1]).params == done.plan.params <= 0.4 * done.plan.dense_params
    plain = us.substitute(trained, us.plan(trained, transform, ratio=0.4, spatial="unfolded"))
    assert error(trained, done.student) < error(trained, plain)
    assert done.steps[0].name == "fitted to the weights alone"
    errors = [step.error for step in done.steps if step.kept]
    assert errors == sorted(errors, reverse=True)


def test_low_rank_keeps_the_answers_where_the_plain_fit_loses_them(trained: nn.Module) -> None:
    x, _ = waves(256, seed=1)
    student = us.compress(trained, ratio=0.4, data=x)
    assert error(trained, student) < 0.05
    seen, labels = waves(256, seed=9)
    with torch.no_grad():
        agreement = (student(seen).argmax(1) == trained(seen).argmax(1)).float().mean()
        assert float((trained(seen).argmax(1) == labels).float().mean()) > 0.9
    assert float(agreement) > 0.97


def test_a_separable_student_is_fitted_to_the_data_too(trained: nn.Module) -> None:
    x, _ = waves(256, seed=1)
    done = us.compression(trained, ratio=0.2, spatial="separable", data=x)
    assert {layer.way for layer in done.plan if layer.spec} <= {"separable", "pointwise"}
    assert done.steps[-1].error < done.steps[0].error


def test_a_student_can_be_trained_saved_and_loaded(trained: nn.Module, tmp_path: Any) -> None:
    x, _ = waves(64, seed=1)
    student = us.compress(trained, "tensor_train", ratio=0.4, data=x)
    assert all(parameter.requires_grad for parameter in student.parameters())
    us.save(student, tmp_path / "student.safetensors")
    again = us.load(tmp_path / "student.safetensors", Trained()).eval()
    torch.testing.assert_close(again(x), student(x))


def test_a_budget_of_mult_adds_and_one_calibration_for_many_students(trained: nn.Module) -> None:
    x, _ = waves(128, seed=1)
    seen = us.calibrate(trained, x)
    dense = us.cost(trained, x[:1]).mult_adds
    for ratio in (0.3, 0.6):
        done = us.compression(trained, mult_adds=int(ratio * dense), data=x, calibration=seen)
        assert done.calibration is seen
        assert us.cost(done.student, x[:1]).mult_adds <= ratio * dense


class Two(nn.Module):
    """Two equal layers side by side, each with half of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(16, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.left(x[:, :16]) + self.right(x[:, 16:]))
        return y


def test_the_budget_is_spent_where_the_outputs_lose_least() -> None:
    """The layer that sees inputs of two directions only takes the cut."""
    generator = torch.Generator().manual_seed(1)
    narrow = torch.randn(256, 2, generator=generator) @ torch.randn(2, 16, generator=generator)
    data = torch.cat([narrow, torch.randn(256, 16, generator=generator)], dim=1)
    model = Two()
    seen = us.calibrate(model, data)
    plan = us.plan(model, "low_rank", ratio=0.6, calibration=seen)
    assert plan.params <= 0.6 * plan.dense_params
    assert plan["left"].params < 0.5 * plan["right"].params
    assert "spent where the network's outputs lose least" in plan.remarks
    with pytest.raises(us.BudgetError):
        us.plan(model, "low_rank", params=60, calibration=seen)
    with pytest.raises(TypeError, match="needs the trained network itself"):
        us.plan(us.sites(model), "low_rank", ratio=0.5, calibration=seen)


def test_the_mean_goes_into_the_bias_or_the_batch_norm_that_follows() -> None:
    model = small()
    found = find_shifts(model, ["normed", "bare", "twice"], Batch(images(2), 2))
    assert found == {"normed": Shift(norm="norm"), "bare": Shift(), "twice": Shift(bias=True)}


def test_a_layer_that_never_runs_is_fitted_plainly() -> None:
    done = us.compression(small(), ratio=0.6, data=images())
    known = done.calibration
    assert "never" in known.idle
    losses = known.losses("never", small().never, us.get_transform("low_rank"), "pointwise", [1, 4, 12])
    assert losses[0] > losses[1] > losses[2] > 0  # an average layer, not one that is worth nothing
    seen = [moments.entry_worth for moments in known.layers.values()]
    weight = small().never.weight.detach().double()
    assert losses[0] < float(weight.square().sum()) * max(seen)


def test_a_quick_compression_fits_each_layer_once() -> None:
    done = us.compression(small(), ratio=0.6, data=images(), quick=True)
    assert [step.name for step in done.steps] == ["fitted to the data"]
    assert "never" in done.calibration.idle
    plain = us.substitute(small(), done.plan)
    fitted = [us.merge(network).get_parameter("never.weight") for network in (done.student, plain)]
    torch.testing.assert_close(*fitted)  # also the one that never runs


class Skipping(nn.Module):
    """A layer whose output its batch norm reads, and a sum beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        made: Tensor = y + self.norm(y)
        return made


def test_a_batch_norm_is_no_place_for_a_mean_that_a_function_reads_too() -> None:
    assert find_shifts(Skipping().eval(), ["conv"], Batch(images(2), 2)) == {"conv": Shift()}


def test_a_network_of_stand_ins_is_refused_and_the_way_is_said() -> None:
    student = us.substitute(Small(), us.plan(Small(), "low_rank", ratio=0.5))
    with pytest.raises(ValueError, match=r"Small holds stand-ins already: us.merge gives plain layers first"):
        us.compress(student, ratio=0.5, data=images())


def test_a_budget_in_the_place_of_the_transform_is_said_to_be_one() -> None:
    with pytest.raises(ValueError, match=r"transform is 0.5, not a name: a budget is given as one, ratio="):
        us.compress(Small(), 0.5, data=images())  # type: ignore[arg-type]
