"""Runs: killed and taken up again with the same bits, never overwritten, never quietly wrong."""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import understudy as us
from understudy import data
from understudy.students.tensors import write_tensors
from understudy.train import DivergedError, Recipe, Run, RunError, memory, prepare, teacher_identity, train
from understudy.train import job as job_module
from understudy.train import student as student_module
from understudy.train.checkpoint import Checkpoint, Progress, State
from understudy.train.figures import Epoch, Outcome
from understudy.train.schedules import rate_factor
from understudy.train.teacher import load_teacher, read_inputs
from understudy.train.trainer import Trainer

SETTINGS: dict[str, Any] = {
    "network": "wrn_10_1",
    "data": "digits",
    "train_images": 128,
    "epochs": 2,
    "batch_size": 32,
    "learning_rate": 0.05,
    "crop_padding": 1,
    "flip": False,
    "checkpoint_seconds": 0.0,
}
STEPS = 8


def recipe(**changes: Any) -> Recipe:
    return Recipe().replaced(SETTINGS | changes)


class StoppedError(Exception):
    """Raised by a test in the midst of a run."""


def stop_at(step: int) -> Callable[[Progress, int, float], None]:
    def watch(progress: Progress, _: int, __: float) -> None:
        if progress.step == step:
            raise StoppedError

    return watch


def outcome(folder: Path) -> tuple[bytes, list[Epoch], Outcome]:
    """What a run leaves, without the time it took."""
    run = Run.read(folder)
    epochs = [dataclasses.replace(epoch, seconds=0.0) for epoch in run.metrics()]
    return run.model_file.read_bytes(), epochs, run.outcome()


def hidden_files(folder: Path) -> list[str]:
    """What a broken write would leave."""
    return [path.name for path in folder.rglob(".*") if path.name != ".lock"]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Networks as small as these are slower on many."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def teacher(whole: Path) -> Path:
    """A finished run, which students learn from."""
    return whole


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train(recipe(), folder)
    return folder


# ---- to the end -----------------------------------------------------------------------------------------


def test_a_run_leaves_its_settings_metrics_network_and_result(whole: Path) -> None:
    run = Run.read(whole)
    assert run.status == "finished"
    assert run.recipe == recipe()
    assert [(epoch.epoch, epoch.step) for epoch in run.metrics()] == [(0, 4), (1, 8)]
    _, _, result = outcome(whole)
    assert result.params == us.cost(us.create_model("wrn_10_1"), torch.zeros(1, 3, 8, 8)).params
    assert result.bytes == (whole / "model.safetensors").stat().st_size
    assert result.errors is not None
    assert result.errors.test_images == 500
    assert hidden_files(whole) == []


def test_the_saved_network_has_the_error_that_the_result_says(whole: Path) -> None:
    network = us.load(whole / "model.safetensors", us.create_model("wrn_10_1", classes=10)).eval()
    x, y = next(iter(data.load("digits").test_batches(500).epoch(0)))
    with torch.no_grad():
        wrong = int((network(x).argmax(1) != y).sum())
    errors = outcome(whole)[2].errors
    assert errors is not None
    assert errors.test_error == pytest.approx(100 * wrong / 500)


def test_a_run_of_another_seed_is_another(whole: Path, tmp_path: Path) -> None:
    train(recipe(seed=1), tmp_path / "other")
    assert outcome(tmp_path / "other")[0] != outcome(whole)[0]


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    train(recipe(epochs=6, train_images=256), tmp_path / "run")
    losses = [epoch.train_loss for epoch in Run.read(tmp_path / "run").metrics()]
    assert losses[-1] < 0.7 * losses[0]


def test_a_finished_run_is_not_repeated(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.name != ".lock"}
    said: list[str] = []
    result = train(recipe(), whole, report=said.append, watch=stop_at(1))
    assert result == outcome(whole)[2]
    assert said == [f"{whole} has finished already"]
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.name != ".lock"} == before


def test_the_rate_follows_its_schedule() -> None:
    stepped = recipe(epochs=200, milestones=[60, 120], gamma=0.2)
    rates = [rate_factor(stepped, epoch, 0, 1) for epoch in (0, 59, 60, 119, 120, 199)]
    assert rates == pytest.approx([1, 1, 0.2, 0.2, 0.04, 0.04])
    cosine = recipe(epochs=100, schedule="cosine")
    assert [rate_factor(cosine, epoch, 0, 1) for epoch in (0, 50, 100)] == pytest.approx([1, 0.5, 0])


@pytest.mark.parametrize(("steps", "rise"), [(40, 0.3), (7, 0.5), (100, 0.1)])
def test_one_cycle_is_that_of_torch_at_every_step(steps: int, rise: float) -> None:
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, 1.0, total_steps=steps, pct_start=rise, cycle_momentum=False
    )
    expected = []
    for _ in range(steps):
        expected.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step() if len(expected) < steps else None
    cycle = recipe(schedule="one_cycle", rise=rise)
    assert [rate_factor(cycle, 0, step, steps) for step in range(steps)] == pytest.approx(expected)
    assert rate_factor(cycle, 0, 0, 1) > 0


# ---- taken up again -------------------------------------------------------------------------------------


def test_a_run_that_was_stopped_again_and_again_ends_with_the_same_bits(whole: Path, tmp_path: Path) -> None:
    for step in (1, 4, 6, STEPS):
        with pytest.raises(StoppedError):
            train(recipe(), tmp_path / "run", watch=stop_at(step))
        assert Run.read(tmp_path / "run").status == "failed"
    train(recipe(), tmp_path / "run")
    assert outcome(tmp_path / "run") == outcome(whole)


ADAMW = {"optimiser": "adamw", "learning_rate": 0.01, "schedule": "one_cycle", "label_smoothing": 0.1}
VARIANTS: dict[str, dict[str, Any]] = {
    "average-contiguous": {"ema": 0.9, "channels_last": False},
    "clipped-nesterov-cosine": {"clip": 0.1, "nesterov": True, "schedule": "cosine"},
    "bfloat16-student": {"precision": "bfloat16", "transform": "low_rank", "ratio": 0.2},
    "adamw-hashed": {**ADAMW, "transform": "hashed", "ratio": 0.1, "decay_overrides": "hashed=none"},
}


def assert_resumes(wanted: Recipe, folder: Path, step: int) -> None:
    train(wanted, folder / "whole")
    with pytest.raises(StoppedError):
        train(wanted, folder / "cut", watch=stop_at(step))
    train(wanted, folder / "cut")
    assert outcome(folder / "cut") == outcome(folder / "whole")


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_part_of_a_run_is_taken_up_again(tmp_path: Path, variant: str) -> None:
    assert_resumes(recipe(**VARIANTS[variant]), tmp_path, 3)


def test_a_student_with_teacher_attention_and_distillation_is_taken_up_again(
    tmp_path: Path, teacher: Path
) -> None:
    student = recipe(
        transform="shuffle", params="8k", teacher=str(teacher), attention=1000, distillation=0.5, ema=0.9
    )
    assert_resumes(student, tmp_path, 6)


class Versioned(nn.BatchNorm1d):
    """Refuses weights that do not say of which version of it they are, as torchvision's MNASNet does."""

    _version = 7

    def _load_from_state_dict(
        self, state: dict[str, Any], prefix: str, local: dict[str, Any], *rest: Any
    ) -> None:
        if local.get("version") != self._version:
            raise ValueError(f"version {local.get('version')}")
        super()._load_from_state_dict(state, prefix, local, *rest)


def test_modules_that_ask_for_their_version_are_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(*_: object, **__: object) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 16), Versioned(16), nn.Linear(16, 10))

    monkeypatch.setattr(student_module, "create_model", small)
    assert_resumes(recipe(ema=0.9), tmp_path, 3)


def test_drop_path_is_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(name: str, **options: Any) -> nn.Module:
        return us.create_model(name, cells=3, channels=4, **options)

    monkeypatch.setattr(student_module, "create_model", small)
    assert_resumes(recipe(network="darts", drop_path=0.5, train_images=32, batch_size=8), tmp_path, 7)


def test_the_auxiliary_head_is_trained_taken_up_again_and_left_out_of_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(name: str, **options: Any) -> nn.Module:
        return us.create_model(name, cells=3, channels=4, **options)

    random = torch.randint(0, 256, (16, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    )
    images = data.Images(
        name="noise", classes=tuple("0123456789"), mean=(0.5,) * 3, std=(0.25,) * 3,
        train_images=random[:8], train_labels=torch.arange(8),
        test_images=random[8:], test_labels=torch.arange(8),
    )  # fmt: skip
    monkeypatch.setattr(student_module, "create_model", small)
    monkeypatch.setattr(job_module, "load_data", lambda *_, **__: images)
    wanted = recipe(network="darts", auxiliary=1.0, drop_path=0.2, batch_size=4, train_images=0)
    assert_resumes(wanted, tmp_path, 3)
    result = outcome(tmp_path / "whole")[2]
    assert result.params == sum(parameter.numel() for parameter in small("darts").parameters())
    student = {"teacher": str(tmp_path / "whole"), "attention": 1000, "taps": "cells.0,cells.1"}
    train(wanted.replaced(student | {"transform": "low_rank", "ratio": 0.7}), tmp_path / "student")
    assert (outcome(tmp_path / "student")[2].params or 0) <= 0.7 * result.params


KILLED = """
import json, pathlib, sys, time, torch
from understudy.train import Recipe, train
torch.set_num_threads(int(sys.argv[2]))
folder = pathlib.Path(sys.argv[1])
sgd, adamw = (Recipe().replaced(json.loads(settings)) for settings in sys.argv[3:])
def begin_another(progress, *_):  # in the midst of the one: both are killed at once
    if progress.step == 3:
        train(adamw, folder / "adamw", watch=lambda *_: time.sleep(0.2))
train(sgd, folder / "sgd", watch=begin_another)
"""


def test_a_process_that_is_killed_leaves_runs_that_end_with_the_same_bits(
    whole: Path, tmp_path: Path
) -> None:
    settings = {"sgd": SETTINGS, "adamw": SETTINGS | ADAMW}
    arguments = [str(tmp_path), str(torch.get_num_threads()), *map(json.dumps, settings.values())]
    environment = os.environ | {"PYTHONPATH": str(Path(us.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments], env=environment)
    try:
        deadline = time.monotonic() + 240
        while len(list(tmp_path.glob("adamw/checkpoints/step-*.safetensors"))) < 2:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(RunError, match="in use by another process"):
            train(recipe(**ADAMW), tmp_path / "adamw")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    for name in settings:
        assert Run.read(tmp_path / name).status == "running"
        said: list[str] = []
        train(Recipe().replaced(settings[name]), tmp_path / name, report=said.append)
        assert said[0].startswith("going on from step ")
    assert outcome(tmp_path / "sgd") == outcome(whole)
    train(recipe(**ADAMW), tmp_path / "whole")
    assert outcome(tmp_path / "adamw") == outcome(tmp_path / "whole")


def test_what_a_kill_left_half_written_is_cleared_and_does_not_matter(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)  # killed before its settings were on disk
    (folder / ".lock").touch()
    (folder / ".config.json.abc").write_text("{")
    with pytest.raises(StoppedError):
        train(recipe(), folder, watch=stop_at(6))
    (folder / "checkpoints" / ".step-000000006.safetensors.xyz").write_bytes(b"half")
    (folder / ".model.safetensors.xyz").write_bytes(b"half")
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"epoch": 1, "st')
    train(recipe(), folder)
    assert outcome(folder) == outcome(whole)
    assert hidden_files(folder) == []


# ---- checkpoints ----------------------------------------------------------------------------------------


def cut(folder: Path, step: int = 6) -> Run:
    """A run that was stopped, with two checkpoints."""
    with pytest.raises(StoppedError):
        train(recipe(), folder, watch=stop_at(step))
    return Run.read(folder)


def test_only_the_last_two_checkpoints_are_kept(whole: Path, tmp_path: Path) -> None:
    names = [path.name for path in cut(tmp_path / "run").checkpoints()]
    assert names == ["step-000000005.safetensors", "step-000000004.safetensors"]
    assert len(Run.read(whole).checkpoints()) == 2


def test_a_truncated_checkpoint_is_refused_with_a_reason_and_the_older_used(
    whole: Path, tmp_path: Path
) -> None:
    newest = cut(tmp_path / "run").checkpoints()[0]
    newest.write_bytes(newest.read_bytes()[:-5])
    said: list[str] = []
    train(recipe(), tmp_path / "run", report=said.append)
    assert said[0].startswith("checkpoint refused: step-000000005.safetensors is damaged (")
    assert said[1] == "going on from step 4, epoch 0"
    assert outcome(tmp_path / "run") == outcome(whole)


def test_a_foreign_checkpoint_is_refused_with_a_reason_and_the_older_used(tmp_path: Path) -> None:
    run, other = cut(tmp_path / "run"), Run.open(tmp_path / "other", recipe(seed=1))
    newest = run.checkpoints()[0]
    other.save(Checkpoint({"x": torch.zeros(3)}, State(Progress(step=5), {}, {})))
    other.close()
    foreign = [other.checkpoints()[0].read_bytes()]
    for header in (None, {"understudy": "[1]"}):
        save_file({"x": torch.zeros(3)}, tmp_path / "foreign", metadata=header)
        foreign.append((tmp_path / "foreign").read_bytes())
    for content in foreign:
        newest.write_bytes(content)
        checkpoint, refused = run.latest(torch.device("cpu"))
        assert re.match(r"step-000000005.safetensors is (of another run|damaged \()", refused[0])
        assert checkpoint is not None
        assert checkpoint.state.progress.step == 4


@dataclasses.dataclass
class Contents:
    """Of a checkpoint, to be changed."""

    tensors: dict[str, Any]
    header: dict[str, Any]

    @property
    def state(self) -> Any:
        return self.header["state"]


NAME = next(name for name, _ in us.create_model("wrn_10_1").named_parameters())


def drop_tensor(found: Contents) -> None:
    del found.tensors[f"network.{NAME}"]


def reshape_tensor(found: Contents) -> None:
    found.tensors[f"network.{NAME}"] = torch.zeros(2)


def retype_tensor(found: Contents) -> None:
    found.tensors[f"network.{NAME}"] = found.tensors[f"network.{NAME}"].double()


def strange_memory(found: Contents) -> None:
    found.tensors["optimiser.momentum_buffer.nothing"] = torch.zeros(2)


DAMAGE: dict[str, Callable[[Contents], Any]] = {
    "no version": lambda found: found.header.pop("version"),
    "another kind": lambda found: found.header.update(kind="student"),
    "identity a number": lambda found: found.header.update(identity=7),
    "no state": lambda found: found.header.pop("state"),
    "more than it has": lambda found: found.header.update(colour="red"),
    "state a list": lambda found: found.header.update(state=[]),
    "no progress": lambda found: found.state.pop("progress"),
    "no step": lambda found: found.state["progress"].pop("step"),
    "step text": lambda found: found.state["progress"].update(step="five"),
    "step below 0": lambda found: found.state["progress"].update(step=-1),
    "step absurd": lambda found: found.state["progress"].update(step=10**18),
    "epoch absurd": lambda found: found.state["progress"].update(epoch=99),
    "more right than seen": lambda found: found.state["progress"].update(right=10**6),
    "loss true": lambda found: found.state["progress"].update(loss_sum=True),
    "no scaler": lambda found: found.state.pop("scaler"),
    "scaler odd": lambda found: found.state.update(scaler={"scale": "large"}),
    "optimiser a list": lambda found: found.state.update(optimiser=[]),
    "optimiser strange": lambda found: found.state.update(optimiser={"step.nothing": 3}),
    "tensor gone": drop_tensor,
    "tensor of another shape": reshape_tensor,
    "tensor of another type": retype_tensor,
    "memory of nothing": strange_memory,
}


def test_a_checkpoint_with_a_damaged_header_is_refused_and_the_older_used(
    whole: Path, tmp_path: Path
) -> None:
    run = cut(tmp_path / "run")
    newest = run.checkpoints()[0]
    with safe_open(newest, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        text = file.metadata()["understudy"]
    trainer = Trainer(prepare(recipe()), STEPS // 2)
    for name, damage in DAMAGE.items():
        found = Contents(dict(tensors), json.loads(text))
        damage(found)
        write_tensors(newest, found.tensors, found.header)
        checkpoint, refused = run.latest(torch.device("cpu"), trainer.check)
        assert refused, name
        assert refused[0].startswith("step-000000005.safetensors is damaged ("), name
        assert checkpoint is not None
        assert checkpoint.state.progress.step == 4, name
    train(recipe(), run.folder)
    assert outcome(run.folder) == outcome(whole)


def test_without_any_whole_checkpoint_the_run_begins_anew(whole: Path, tmp_path: Path) -> None:
    for path in cut(tmp_path / "run").checkpoints():
        path.write_bytes(b"")
    said: list[str] = []
    train(recipe(), tmp_path / "run", report=said.append)
    assert [line.split(":")[0] for line in said[:3]] == ["checkpoint refused"] * 2 + ["epoch 1/2"]
    assert outcome(tmp_path / "run") == outcome(whole)


def test_a_disk_that_fills_leaves_no_corrupt_file(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    writes = 0

    def fill(tensors: Any, path: Path, metadata: Any) -> None:
        nonlocal writes
        writes += 1
        if writes == 3:
            path.write_bytes(b"half a checkpoint")
            raise OSError(errno.ENOSPC, "No space left on device")
        save_file(tensors, path, metadata=metadata)

    with monkeypatch.context() as patch:
        patch.setattr("understudy.students.tensors.save_file", fill)
        with pytest.raises(RunError, match="cannot write the checkpoint"):
            train(recipe(), folder)
    assert Run.read(folder).status == "failed"
    assert [path.name[-13:-12] for path in Run.read(folder).checkpoints()] == ["2", "1"]
    assert hidden_files(folder) == []
    train(recipe(), folder)
    assert outcome(folder) == outcome(whole)


# ---- folders --------------------------------------------------------------------------------------------


def test_another_recipe_in_the_same_folder_is_refused_and_changes_nothing(whole: Path) -> None:
    before = outcome(whole)
    with pytest.raises(RunError, match=r"belongs to another run \(learning_rate 0\.05 → 0\.1\)"):
        train(recipe(learning_rate=0.1), whole)
    assert outcome(whole) == before
    assert Run.read(whole).recipe == recipe()


def test_a_folder_with_other_things_in_it_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="is not empty and holds no run"):
        train(recipe(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="is a file"):
        train(recipe(), tmp_path / "thesis.tex")


def test_a_folder_without_a_run_or_with_damaged_settings_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        Run.read(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunError, match="is not the settings of a run"):
        Run.read(tmp_path)


@pytest.mark.parametrize("held", [None, 1, 99])
def test_a_run_of_another_format_is_refused_with_both_formats(
    whole: Path, tmp_path: Path, held: int | None
) -> None:
    config = json.loads((whole / "config.json").read_text())
    del config["format"]
    (tmp_path / "config.json").write_text(json.dumps(config if held is None else {**config, "format": held}))
    for look in (Run.read, teacher_identity, functools.partial(train, recipe())):
        with pytest.raises(RunError, match=rf"has format {held}, .* reads format 3"):
            look(tmp_path)


# ---- divergence -----------------------------------------------------------------------------------------


def test_a_rate_that_is_far_too_high_is_recorded_as_diverged(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        train(recipe(learning_rate=1e30), tmp_path / "run")
    run = Run.read(tmp_path / "run")
    assert run.status == "diverged"
    assert "finite" in run.stands().reason
    assert not (run.folder / "model.safetensors").exists()
    assert not (run.folder / "result.json").exists()


def test_a_loss_that_is_not_finite_names_step_and_layer_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    networks: list[nn.Module] = []
    make = student_module.make_student

    def keep(*arguments: Any) -> nn.Module:
        networks.append(make(*arguments))
        return networks[-1]

    def poison(progress: Progress, _: int, __: float) -> None:
        if progress.step == 3:
            with torch.no_grad():
                networks[-1].get_parameter("stage2.0.conv1.weight")[0, 0, 0, 0] = float("nan")

    monkeypatch.setattr(job_module, "make_student", keep)
    with pytest.raises(DivergedError, match=r"'stage2\.0\.conv1\.weight' is not finite after step 3"):
        train(recipe(), folder, watch=poison)
    run = Run.read(folder)
    assert (run.status, run.stands().step) == ("diverged", 3)
    assert [path.stem for path in run.checkpoints()] == ["step-000000002", "step-000000001"]
    rare = recipe(checkpoint_seconds=300.0)
    with pytest.raises(
        DivergedError, match=r"the loss is nan at step 3; the first .* is that of 'stage2\.0\.conv1'"
    ):
        train(rare, tmp_path / "rare", watch=poison)
    assert Run.read(tmp_path / "rare").status == "diverged"


def test_a_weight_spoilt_by_the_very_last_step_does_not_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    networks: list[nn.Module] = []
    make = student_module.make_student

    def keep(*arguments: Any) -> nn.Module:
        networks.append(make(*arguments))
        return networks[-1]

    def poison(progress: Progress, _: int, __: float) -> None:
        if progress.step == STEPS:
            with torch.no_grad():
                networks[-1].get_parameter("head.bias").fill_(float("inf"))

    monkeypatch.setattr(job_module, "make_student", keep)
    with pytest.raises(DivergedError, match=r"'head\.bias' is not finite after step 8"):
        train(recipe(checkpoint_seconds=300.0), tmp_path / "run", watch=poison)
    assert Run.read(tmp_path / "run").status == "diverged"


# ---- the teacher ----------------------------------------------------------------------------------------


def test_a_teacher_that_is_missing_unfinished_or_does_not_fit_is_named(tmp_path: Path, teacher: Path) -> None:
    def student(source: Path, **changes: Any) -> Recipe:
        return recipe(transform="low_rank", ratio=0.2, attention=1000, teacher=str(source), **changes)

    with pytest.raises(RunError, match=r"no teacher .*missing"):
        train(student(tmp_path / "missing"), tmp_path / "run")
    cut(tmp_path / "cut")
    with pytest.raises(RunError, match="is failed, not finished"):
        train(student(tmp_path / "cut"), tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="holds no run"):
        train(student(tmp_path / "empty"), tmp_path / "run")
    weights = teacher / "model.safetensors"
    with pytest.raises(ValueError, match="does not fit wrn_16_2"):
        train(student(weights, network="wrn_16_2"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_teacher_is_known_by_what_it_is(tmp_path: Path, teacher: Path) -> None:
    run = Run.read(teacher)
    assert teacher_identity(teacher) == run.identity == recipe().identity()
    moved = tmp_path / "moved.safetensors"
    moved.write_bytes(run.model_file.read_bytes())
    assert teacher_identity(str(moved)) == teacher_identity(run.model_file) != run.identity
    assert teacher_identity("timm:resnet18") == "timm:resnet18"
    with pytest.raises(RunError, match=r"no plan .missing\.json."):
        train(recipe(plan="missing.json"), tmp_path / "run")
    # What a grid knows beforehand is what the run will be.
    student = recipe(transform="low_rank", ratio=0.2, attention=1000, teacher=str(teacher))
    inputs = read_inputs(student)
    assert Run(tmp_path, student, inputs).identity == student.identity(teacher=recipe().identity())


def test_a_teacher_for_other_classes_is_named(teacher: Path) -> None:
    with pytest.raises(RunError, match="does not fit wrn_10_1 with 100 classes"):
        load_teacher(recipe(teacher=str(teacher)), 100)


def test_a_teacher_from_a_run_and_from_its_file_are_the_same_network(teacher: Path) -> None:
    states = []
    for source in (teacher, teacher / "model.safetensors"):
        network = load_teacher(recipe(teacher=str(source)), 10)
        assert network is not None
        assert not network.training
        assert not any(parameter.requires_grad for parameter in network.parameters())
        states.append({k: v for k, v in network.state_dict().items() if "num_batches" not in k})
    for key, tensor in states[0].items():
        assert torch.equal(tensor, states[1][key]), key


def test_a_student_begins_with_the_teachers_weights_where_asked(tmp_path: Path, teacher: Path) -> None:
    settings = {"transform": "low_rank", "ratio": 0.2, "teacher": str(teacher), "init": "project"}
    train(recipe(**settings), tmp_path / "run")
    ours, theirs = outcome(tmp_path / "run")[2].params, outcome(teacher)[2].params
    assert ours is not None
    assert theirs is not None
    assert ours <= 0.2 * theirs
    with pytest.raises(ValueError, match="needs a teacher"):
        train(recipe(transform="low_rank", ratio=0.2, init="project"), tmp_path / "other")


def test_a_compiled_run_learns_as_an_eager_one(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = {"train_images": 40, "epochs": 1, "transform": "shuffle", "ratio": 0.1}
    student |= {"teacher": str(teacher), "attention": 10.0}
    eager = train(recipe(**student), tmp_path / "eager")
    # The whole path but the code generator, which alone takes minutes.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    compiled = train(recipe(**student, compile=True), tmp_path / "compiled")
    assert eager.epoch is not None
    assert compiled.epoch is not None
    ours, theirs = compiled.epoch.numbers(), eager.epoch.numbers()
    assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)
    assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-4)


def test_recomputing_is_a_matter_of_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student = {"transform": "tensor_train", "params": "12k", "epochs": 1}
    with monkeypatch.context() as crowded:
        crowded.setattr(memory, "free_bytes", lambda _: 1)
        train(recipe(**student), tmp_path / "recomputed")
    train(recipe(**student, recompute=False), tmp_path / "kept")
    assert outcome(tmp_path / "recomputed") == outcome(tmp_path / "kept")
    assert recipe(**student).identity() == recipe(**student, recompute=False).identity()
    averaged = train(recipe(**student, recompute=False, ema=0.5), tmp_path / "averaged")
    assert averaged.bytes == outcome(tmp_path / "kept")[2].bytes  # how it trained is not kept
