"""The last layer scaled and moved: outputs that vary and lie as the original's do, at no cost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_calibrate import images, small
from torch import Tensor, nn

import understudy as us
from snapshots import snapshot
from understudy.fitting.attempts import Attempts
from understudy.fitting.inputs import Batch, read_batches
from understudy.fitting.levels import last_layer, take_levels_back_


class Bent(nn.Module):
    """A network whose output a student has a times too large, and moved by a constant."""

    def __init__(self, factor: float = 1.0, constant: Tensor | float = 0.0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
        with torch.no_grad():
            assert self.head.bias is not None
            self.head.weight.mul_(factor)
            self.head.bias.mul_(factor).add_(constant)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x).relu())


def batches(*shapes: tuple[int, ...], seed: int = 1) -> list[Batch]:
    draw = torch.Generator().manual_seed(seed)
    return [Batch(torch.randn(shape, generator=draw), shape[0]) for shape in shapes]


@given(
    factor=st.floats(0.1, 10),
    constant=st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    shapes=st.sampled_from([[(8, 6)], [(4, 6), (5, 6)], [(5, 7, 6), (4, 5, 6)]]),
)
def test_what_was_scaled_and_moved_is_taken_back(
    factor: float, constant: list[float], shapes: list[tuple[int, ...]]
) -> None:
    attempts = Attempts(Bent().eval(), batches(*shapes), None)
    student = Bent(factor, torch.tensor(constant)).eval()
    before = snapshot(student)
    attempts.consider("bent", student)
    assert snapshot(student) == before
    assert attempts.error < 1e-8
    assert attempts.error_of(attempts.levelled) < 1e-8


@pytest.mark.parametrize("kind", ["convolution", "padded tokens"])
def test_pixels_are_levelled_by_channel_and_tokens_that_fill_up_do_not_count(kind: str) -> None:
    draw = torch.Generator().manual_seed(5)
    layer: nn.Module = nn.Conv2d(3, 5, 3) if kind == "convolution" else Masked()
    shape = (8, 3, 8, 8) if kind == "convolution" else (8, 10, 5)
    x = torch.randn(shape, generator=draw)
    inputs: Any = x
    if kind != "convolution":
        inputs = {"x": x, "attention_mask": torch.arange(10) < torch.arange(2, 10)[:, None]}
    student = copy.deepcopy(layer)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.5)
        next(p for name, p in student.named_parameters() if name.endswith("bias")).add_(2)
    attempts = Attempts(layer, [Batch(inputs, 8)], None)
    attempts.consider("bent", student)
    assert attempts.error < 1e-8
    assert attempts.error_of(attempts.levelled) < 1e-8


def test_a_mask_that_the_outputs_do_not_follow_says_nothing_of_them() -> None:
    class Across(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Conv1d(5, 4, 1)

        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            assert attention_mask.shape == x.shape[:2]
            out: Tensor = self.head(x.mT)
            return out

    model = Across().eval()
    student = copy.deepcopy(model)
    with torch.no_grad():
        student.head.weight.mul_(1.5)
    x = torch.randn(8, 10, 5, generator=torch.Generator().manual_seed(5))
    inputs = {"x": x, "attention_mask": torch.arange(10) < torch.arange(2, 10)[:, None]}
    attempts = Attempts(model, [Batch(inputs, 8)], None)
    attempts.consider("bent", student)
    assert attempts.error_of(attempts.levelled) < 1e-8


class Masked(nn.Module):
    """A vector for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        assert attention_mask.shape == x.shape[:2]
        out: Tensor = self.head(x)
        return out


def erring(by: float, **bent: float) -> Bent:
    student = Bent(**bent).eval()
    with torch.no_grad():
        student.body.weight.add_(by * torch.randn(8, 6, generator=torch.Generator().manual_seed(2)))
    return student


@pytest.mark.parametrize("count", [1, 2, 7])
def test_few_samples_say_nothing_of_all(count: int) -> None:
    attempts, student = Attempts(Bent().eval(), batches((count, 6)), None), erring(1.0)
    assert attempts.judged(student) == (attempts.error_of(student), None)


def test_what_comes_after_begins_without_the_level_and_is_judged_as_the_others() -> None:
    attempts = Attempts(Bent().eval(), batches((8, 6)), None)
    student = erring(0.5, factor=1.5)
    attempts.consider("first", student)
    assert attempts.levelled is not attempts.best is student
    attempts.consider("the same", copy.deepcopy(attempts.best))
    assert [step.kept for step in attempts.steps] == [True, False]
    assert attempts.steps[0].error == attempts.steps[1].error


class Taken(nn.Module):
    """The first of two."""

    def forward(self, both: Any) -> Tensor:
        first: Tensor = both[0]
        return first


class Weak(nn.Linear):
    """Takes a hundredth of its bias."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, 0.01 * self.bias)


class Pair(nn.Linear):
    """Gives its bias beside its product, for others to add."""

    def forward(self, x: Tensor) -> Any:
        return nn.functional.linear(x, self.weight), self.bias


class OneBias(nn.Module):
    """A look-alike with one number for all outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 8)), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


def with_head(head: nn.Module) -> nn.Module:
    model = Bent()
    model.head = head  # type: ignore[assignment]
    return model.eval()


def replaced() -> nn.Module:
    """The head of this one network computes otherwise than its class."""
    model = Bent()
    model.head.forward = lambda input: 3 * nn.functional.linear(input, model.head.weight)  # type: ignore[method-assign]
    return model.eval()


def hooked() -> nn.Module:
    model = Bent()
    model.head.register_forward_hook(lambda _, __, y: 10 * y)
    return model.eval()


@pytest.mark.parametrize(
    "model",
    [
        with_head(Weak(8, 4)),
        with_head(nn.Sequential(Pair(8, 8), Taken(), nn.Linear(8, 4, bias=False))),
        with_head(OneBias()),
        hooked(),
        replaced(),
        with_head(nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))),
    ],
    ids=["a forward of its own", "a tuple", "one bias", "a hook", "a forward of one", "a computed weight"],
)
def test_a_layer_that_does_something_else_is_left_as_it_is(model: nn.Module) -> None:
    (batch,) = batches((12, 6))
    assert last_layer(model, batch, None) is None


def test_a_level_that_does_not_do_what_it_should_is_not_taken() -> None:
    """The head that one sample meets is not the one that many do."""

    class Choosing(Bent):
        def __init__(self) -> None:
            super().__init__()
            self.other = nn.Linear(8, 4)
            nn.init.zeros_(self.other.weight)

        def forward(self, x: Tensor) -> Any:
            x = self.body(x).relu()
            return self.head(x) if len(x) == 1 else self.other(x) + x[:, :4]

    model = Choosing().eval()
    student = copy.deepcopy(model)
    with torch.no_grad():
        student.body.weight.mul_(3)
    (batch,) = batches((12, 6))
    assert last_layer(model, batch, None) == "head"
    attempts = Attempts(model, [batch], None)
    assert attempts.judged(student)[1] is not None
    attempts.consider("larger", student)
    assert attempts.judged(student)[1] is None
    assert attempts.levelled is student
    assert attempts.error == attempts.error_of(student)


def test_a_level_that_the_samples_only_seem_to_show_is_not_taken() -> None:
    attempts, student = Attempts(Bent().eval(), batches((8, 6)), None), erring(0.02)
    assert attempts.judged(student) == (attempts.error_of(student), None)


def test_the_error_is_that_of_samples_that_the_level_has_not_seen() -> None:
    original, student = Bent().eval(), erring(0.3, factor=1.4, constant=1.0)
    attempts = Attempts(original, batches((24, 6)), None)
    error, level = attempts.judged(student)
    assert level is not None
    assert attempts.error_of(level.applied(student)) < error < attempts.error_of(student)
    other = Attempts(original, batches((4096, 6), seed=9), None)
    assert other.error_of(level.applied(student)) < other.error_of(student)


def returning(change: Callable[[Bent, Tensor], Any]) -> nn.Module:
    class Other(Bent):
        def forward(self, x: Tensor) -> Any:
            return change(self, x)

    return Other().eval()


def tied() -> nn.Module:
    model = Bent().eval()
    model.other = copy.deepcopy(model.head)
    model.other.weight = model.head.weight
    return model


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (Bent(), "head"),
        (nn.Sequential(nn.Linear(6, 4)), "0"),
        (returning(lambda self, x: {"logits": Bent.forward(self, x), "x": x}), "head"),
        (returning(lambda self, x: Bent.forward(self, x).softmax(-1)), None),  # a sum of 1 is not a layer's
        (returning(lambda self, x: Bent.forward(self, x).mul_(2)), None),  # what it gave is written over
        (returning(lambda self, x: self.head(self.head(x @ x.new_ones(6, 8)) @ x.new_ones(4, 8))), None),
        (tied(), None),
        (nn.Linear(6, 4, bias=False), None),
        (nn.Identity(), None),
    ],
)
def test_the_last_layer_is_the_one_whose_output_is_the_networks(model: nn.Module, path: str | None) -> None:
    (batch,) = batches((3, 6))
    assert last_layer(model.eval(), batch, None) == path
    if path is not None:
        assert (
            last_layer(
                model,
                batch,
                lambda returned: 2 * returned["x"] if isinstance(returned, dict) else returned.abs(),
            )
            is None
        )


def test_a_levelled_student_is_saved_loaded_and_merged_as_it_is(tmp_path: Path) -> None:
    model, inputs = small().eval(), images(128)
    student = us.compress(model, ratio=0.4, data=inputs, quick=True)
    us.save(student, tmp_path / "student.safetensors")
    loaded = us.load(tmp_path / "student.safetensors", small())
    with torch.no_grad():
        assert torch.equal(loaded.eval()(inputs), student(inputs))
        torch.testing.assert_close(us.merge(student)(inputs), student(inputs))


def test_a_student_whose_last_layer_is_a_stand_in_is_left_as_it_is() -> None:
    model = Bent().eval()
    plan = us.plan(model, "low_rank", ratio=0.8, include=["body", "head"])
    student = us.substitute(model, plan)
    error, level = Attempts(model, batches((8, 6)), None).judged(student)
    assert level is None
    assert error > 0


@given(st.floats(0.01, 100).filter(lambda factor: abs(factor - 1) > 1e-3), st.floats(-5, 5))
def test_a_level_is_taken_back_before_training(factor: float, constant: float) -> None:
    model, student = Bent(), Bent(factor, constant)
    take_levels_back_(student, model)
    assert snapshot(student).values == snapshot(model).values


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head.weight.neg_(),
        lambda head: head.weight[0].mul_(1.001),
        lambda head: head.weight.zero_(),
        lambda head: head.bias.add_(1),
    ],
    ids=["turned", "one row", "nothing", "moved alone"],
)
def test_a_layer_that_is_no_level_of_the_original_trains_from_where_it_is(
    change: Callable[[Any], object],
) -> None:
    model, student = Bent(), Bent()
    with torch.no_grad():
        change(student.head)
    before = snapshot(student)
    take_levels_back_(student, model)
    assert snapshot(student) == before


def test_stand_ins_and_layers_that_the_original_has_not_train_from_where_they_are() -> None:
    model = Bent()
    student = us.substitute(model, us.plan(model, "low_rank", ratio=0.8, include=["head"]))
    student.add_module("other", nn.Linear(3, 3))
    before = snapshot(student)
    take_levels_back_(student, model)
    assert snapshot(student) == before


def test_a_weight_that_others_share_trains_from_where_it_is() -> None:
    model = Bent()
    student = Bent(0.5)
    student.add_module("other", nn.Linear(8, 4))
    student.get_submodule("other").register_parameter("weight", nn.Parameter(student.head.weight))
    student.head.weight = student.get_parameter("other.weight")
    before = snapshot(student)
    take_levels_back_(student, model)
    assert snapshot(student) == before


def test_compressing_takes_back_what_all_outputs_have_lost() -> None:
    model, inputs = small().eval(), images(128)
    student = us.compress(model, ratio=0.4, data=inputs, quick=True)
    before = snapshot(model.head)
    assert snapshot(student.get_submodule("head")) != before
    unlevelled = copy.deepcopy(student)
    unlevelled.get_submodule("head").load_state_dict(model.head.state_dict())
    unseen = Attempts(model, read_batches(images(512, seed=7), 512), None)
    assert unseen.error_of(student) < unseen.error_of(unlevelled)
    assert snapshot(model.head) == before
