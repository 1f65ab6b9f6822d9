"""Recovery: a student comes nearer to its original, without a label, and the original stays as it is."""

from __future__ import annotations

import copy
import importlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

import understudy as us
from snapshots import snapshot
from understudy.distil.distillation import output_loss
from understudy.train import recover
from understudy.train.recover import SETTINGS, settings_for

STRONG = {"batch_size": 32, "learning_rate": 3e-3}
recover_module = importlib.import_module("understudy.train.recover")  # the package has the function


class Small(nn.Module):
    """Three layers and a batch norm; a dictionary may hold its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 24), nn.BatchNorm1d(24)
        self.hidden, self.last = nn.Linear(24, 24), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(torch.relu(self.hidden(torch.relu(self.norm(self.first(x))))))
        return y


def inputs(count: int = 256, seed: int = 0) -> Tensor:
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Small().eval()


@pytest.fixture
def student(model: nn.Module) -> nn.Module:
    return us.compress(model, ratio=0.65, data=inputs(64)).eval()


@torch.no_grad()
def error(student: nn.Module, model: nn.Module) -> float:
    x = inputs(seed=1)
    return float(output_loss(student.eval()(x), model(x)))


@pytest.mark.parametrize(
    "data",
    [
        inputs(),
        list(inputs().split(32)),
        [(x, torch.zeros(32, dtype=torch.long)) for x in inputs().split(32)],
        [{"x": x, "labels": torch.zeros(32)} for x in inputs().split(32)],
        iter(inputs().split(32)),
    ],
    ids=["tensor", "batches", "pairs", "dictionaries", "iterator"],
)
def test_a_student_comes_nearer_to_its_original_without_labels(
    data: Any, model: nn.Module, student: nn.Module
) -> None:
    before = snapshot(model), snapshot(student)
    done = recover(student, model, data, epochs=12, settings=STRONG)
    assert error(done.network, model) < 0.7 * error(student, model)
    assert (snapshot(model), snapshot(student)) == before
    assert len(done.epochs) == 12


def test_a_last_layer_that_was_scaled_and_moved_trains_from_where_the_teachers_is(model: nn.Module) -> None:
    student = us.substitute(model, us.plan(model, "low_rank", ratio=0.8, include=["hidden"]))
    last, wanted = student.get_submodule("last"), model.get_submodule("last").state_dict()
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(0.3)
    levelled = copy.deepcopy(last.state_dict())
    still = {"learning_rate": 1e-30, "weight_decay": 0.0}
    made = recover(student, model, inputs(64), epochs=1, settings=still).network
    for name, value in made.get_submodule("last").state_dict().items():
        assert torch.equal(value, wanted[name])
        assert torch.equal(last.state_dict()[name], levelled[name])


def test_one_dictionary_is_one_batch(model: nn.Module, student: nn.Module) -> None:
    assert recover(student, model, {"x": inputs(32)}, epochs=1).epochs[-1].step == 1


def test_tokens_that_only_fill_up_a_batch_teach_nothing() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with torch.random.fork_rng():
                torch.manual_seed(0)
                self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
            assert attention_mask.shape == x.shape[:2]
            y: Tensor = self.last(self.first(x).relu())
            return y

    teacher, x = Tokens(), inputs(16).reshape(2, 8, 8)
    student = us.compress(teacher, ratio=0.8, data=[{"x": x, "attention_mask": torch.ones(2, 8)}])
    mask = torch.ones(2, 8)
    mask[1, 3:] = 0
    other = torch.where(mask[..., None] > 0, x, 9.0)
    first, second = (
        recover(student, teacher, [{"x": one, "attention_mask": mask}], epochs=3).network
        for one in (x, other)
    )
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


class Noting(nn.Linear):
    """Keeps what is no tensor in its state."""

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None:
        assert state == {"version": 3}


def test_a_student_may_keep_what_is_no_tensor_in_its_state(tmp_path: Path, model: nn.Module) -> None:
    model.last = Noting(24, 4)
    student = us.compress(model, ratio=0.65, data=inputs(64), exclude=["last"])
    steps = []
    done = recover(student, model, inputs(64), epochs=1, settings={"ema": 0.5})
    assert isinstance(done.network.last, Noting)
    with pytest.raises(ValueError, match=r"'last\._extra_state' is dict, which understudy does not store"):
        recover(student, model, inputs(64), epochs=1, out=tmp_path / "run", watch=lambda *_: steps.append(1))
    assert not steps  # it is said before anything is trained
    assert not list(tmp_path.iterdir())


def test_seconds_are_a_limit(model: nn.Module, student: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=(ticks / 100 for ticks in itertools.count()).__next__)
    monkeypatch.setattr(recover_module, "time", clock)  # a step takes a hundredth of a second
    said: list[str] = []
    done = recover(student, model, inputs(), seconds=0.5, settings={"batch_size": 32}, report=said.append)
    assert done.epochs[0].step == 44  # six were tried before
    assert said[0] == "44 steps in about 0.5 s"


def test_a_run_that_has_finished_is_not_repeated(
    model: nn.Module, student: nn.Module, tmp_path: Path
) -> None:
    said: list[str] = []
    done = recover(student, model, inputs(64), epochs=1, out=tmp_path / "run")
    again = recover(student, model, inputs(64), epochs=1, out=tmp_path / "run", report=said.append)
    assert said == [f"{tmp_path / 'run'} has finished already"]
    torch.testing.assert_close(again.network.state_dict(), done.network.state_dict())


def test_a_student_comes_back_in_its_modes(model: nn.Module, student: nn.Module, tmp_path: Path) -> None:
    student.train()
    student.get_submodule("norm").eval()
    for again in (False, True):  # the second finds a run that has finished
        network = recover(student, model, inputs(64), epochs=1, out=tmp_path / "run").network
        assert (network.training, network.get_submodule("norm").training) == (True, False), again
    assert not recover(student.eval(), model, inputs(64), epochs=1).network.training


@torch.no_grad()
def test_a_student_that_is_frozen_is_trained_and_frozen_again(
    model: nn.Module, student: nn.Module, tmp_path: Path
) -> None:
    student.requires_grad_(False)
    network = recover(student, model, inputs(), epochs=12, settings=STRONG).network
    assert error(network, model) < 0.9 * error(student, model)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    student.get_parameter("last.weight").requires_grad_(True)
    recover(student, model, inputs(), epochs=1, out=tmp_path / "run")
    again = recover(student, model, inputs(), epochs=1, out=tmp_path / "run").network  # it has finished
    assert [name for name, one in again.named_parameters() if one.requires_grad] == ["last.weight"]
    partly = recover(student, model, inputs(), epochs=1).network
    changed = {
        name
        for (name, old), new in zip(student.named_parameters(), partly.parameters(), strict=True)
        if not torch.equal(old, new)
    }
    assert changed == {"last.weight"}


class Heads(nn.Module):
    """Gives what it computes on the way too, in a form of its own."""

    def __init__(self, given: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.body, self.given = Small(), given

    def forward(self, x: Tensor) -> Any:
        logits = self.body(x)
        return self.given(self.body.first(x), logits)


@pytest.mark.parametrize(
    ("given", "output_of"),
    [
        (lambda _, z: {"scores": {"logits": z}}, None),
        (lambda _, z: (z.argmax(1), z), None),
        (lambda _, z: (z.square().mean(), z), None),
        (lambda hidden, z: (hidden, z), lambda returned: returned[1]),
        (lambda _, z: SimpleNamespace(logits=z), lambda returned: returned.logits),
    ],
    ids=["nested", "answers first", "loss first", "second", "object"],
)
def test_the_output_that_compress_keeps_is_the_one_that_is_taught(given: Any, output_of: Any) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Heads(given).eval()
    student = us.compress(model, ratio=0.65, data=inputs(64), output_of=output_of)
    network = recover(student, model, inputs(), epochs=8, settings=STRONG, output_of=output_of).network
    assert error(network.get_submodule("body"), model.body) < error(student.get_submodule("body"), model.body)


def test_without_a_tensor_the_way_to_name_one_is_told() -> None:
    with pytest.raises(ValueError, match="gave a SimpleNamespace without a tensor of numbers in it; a func"):
        us.compress(Heads(lambda _, z: SimpleNamespace(logits=z)), ratio=0.5, data=inputs(64))


@pytest.mark.parametrize("count", [33, 65])
def test_a_last_sample_by_itself_is_left_out(count: int, model: nn.Module, student: nn.Module) -> None:
    done = recover(student, model, inputs(count), epochs=1, settings={"batch_size": 32})
    assert done.epochs[0].step == count // 32


def test_a_loader_of_a_stream_is_read_once(model: nn.Module, student: nn.Module) -> None:
    class Stream(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            return iter(inputs(64))

    assert recover(student, model, DataLoader(Stream(), 16), epochs=2).epochs[-1].step == 8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(dtype: torch.dtype, model: nn.Module, student: nn.Module) -> None:
    with pytest.raises(ValueError, match=r"is in b?float16, too coarse to be trained: recover student.float"):
        recover(student.to(dtype), model.to(dtype), inputs(64).to(dtype), epochs=1)


@pytest.mark.parametrize(
    ("limits", "data", "words"),
    [
        ({}, inputs(8), "give either epochs or seconds; got None and None"),
        ({"epochs": 1, "seconds": 3}, inputs(8), "give either epochs or seconds"),
        ({"seconds": -1}, inputs(8), "-1 seconds is not above 0"),
        ({"seconds": 1, "out": "run"}, inputs(8), "seconds are for one without"),
        ({"epochs": 1}, [], "the data hold no batch"),
        ({"epochs": 1, "settings": {"rate": 1}}, inputs(8), "no setting 'rate'"),
    ],
)
def test_what_cannot_be_done_is_said(
    limits: dict[str, Any], data: Any, words: str, model: nn.Module, student: nn.Module
) -> None:
    with pytest.raises(ValueError, match=words):
        recover(student, model, data, **limits)


def test_the_share_of_the_outputs_that_is_lost() -> None:
    wanted = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert float(output_loss(wanted, wanted)) == 0
    assert float(output_loss(torch.zeros(2, 2), wanted)) == 1
    assert float(output_loss(torch.ones(2, 2), torch.zeros(2, 2))) == 4
    with pytest.raises(ValueError, match=r"the student gives \(2, 3\), the teacher \(2, 2\)"):
        output_loss(torch.zeros(2, 3), wanted)


# ---- the rate -------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", ["low_rank", "hashed", "acdc"])  # of matrices, and of vectors alone
def test_the_rate_is_in_proportion_to_the_parameters_but_not_to_norms_and_biases(
    model: nn.Module, transform: str
) -> None:
    student = us.substitute(model, us.plan(model, transform, ratio=0.9, include=["hidden"]))
    rate = settings_for(student, {}).learning_rate
    with torch.no_grad():
        student.get_submodule("norm").weight.mul_(100)  # type: ignore[operator]
        student.get_submodule("last").bias.add_(100)  # type: ignore[operator]
    assert settings_for(student, {}).learning_rate == rate > 0
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "norm" not in name and not name.endswith("bias"):
                parameter.mul_(3)
    assert settings_for(student, {}).learning_rate == pytest.approx(3 * rate, rel=0.1)  # it is rounded


def test_a_rate_that_is_asked_for_is_taken(student: nn.Module) -> None:
    asked = settings_for(student, {"learning_rate": 0.5, "seed": 3})
    assert (asked.learning_rate, asked.seed, asked.optimiser) == (0.5, 3, SETTINGS.optimiser)


def test_factors_learn_by_their_size_and_under_another_optimiser_alike(student: nn.Module) -> None:
    for same in ({}, {"optimiser": "adamw"}):
        assert settings_for(student, same).rates == "size"
    asked = settings_for(student, {"optimiser": "sgd"})
    assert (asked.optimiser, asked.rates) == ("sgd", "same")
    assert settings_for(student, {"optimiser": "adamw", "rates": "fan"}).rates == "fan"


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_parameters_without_a_size_have_the_usual_rate(value: float) -> None:
    nothing = nn.Linear(3, 2)
    for parameter in nothing.parameters():
        nn.init.constant_(parameter, value)
    assert settings_for(nothing, {}).learning_rate == SETTINGS.learning_rate
    assert settings_for(nn.BatchNorm1d(3), {}).learning_rate == SETTINGS.learning_rate
