"""The commands that train and look at runs; bad input ends with one line, exit code 2, no half-made file."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

import understudy as us
from command import Result, Run
from understudy import data
from understudy.train import Run as TrainingRun
from understudy.train import recipe_names
from understudy.train.trainer import Trainer

SMALL = [
    *("--set", "network=wrn_10_1", "--set", "train_images=96", "--set", "batch_size=32"),
    *("--set", "epochs=2", "--set", "checkpoint_seconds=0"),
]


@pytest.fixture(autouse=True)
def few_test_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 of the 500 digits that are kept for testing."""
    load = data.load
    monkeypatch.setattr(data, "load", lambda *a, **k: load(*a, **k).take(test=100))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the teacher lies that all tests begin with."""
    return tmp_path_factory.mktemp("kept") / "teacher"


@pytest.fixture
def teacher(run: Run, kept: Path, tmp_path: Path) -> Path:
    """A trained network of the test's own."""
    if not kept.exists():
        assert run("train", "demo", *SMALL, "--out", kept).code == 0
    return Path(shutil.copytree(kept, tmp_path / "teacher"))


def assert_refused(result: Result, *words: str) -> None:
    """Exit code 2, one line on the error stream, no traceback."""
    assert result.code == 2, result.err
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if path.name != ".lock"]


def test_a_teacher_then_its_student_in_two_commands(run: Run, teacher: Path, tmp_path: Path) -> None:
    out = tmp_path / "student"
    arguments = ["train", "demo", *SMALL, "--transform", "low_rank", "--params", "20k", "--teacher", teacher]
    done = run(*arguments, "--out", out)
    assert done.code == 0, done.err
    assert "epoch 2/2" in done.err
    assert "test error" in done.out
    result = json.loads((out / "result.json").read_text())
    assert result["params"] <= 20_000
    assert (out / "plan.json").exists()
    again = run(*arguments, "--out", out)
    assert again.code == 0
    assert "has finished already" in again.err


def test_the_settings_are_printed_by_where_they_come_from_and_saved(run: Run, tmp_path: Path) -> None:
    done = run("train", "demo", *SMALL, "--out", tmp_path / "run")
    flags, rest = done.text.split("flags", 1)[1].split(" recipe ", 1)
    shipped, defaults = rest.split(" default ", 1)
    assert "epochs=2" in flags
    assert "learning_rate=0.05" in shipped
    assert "nesterov=False" in defaults
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["recipe"]
    assert (saved["epochs"], saved["learning_rate"]) == (2, 0.05)


FILE = """
import torch
import understudy as us
from understudy.data import Images

def network(classes=3):
    return us.create_model("wrn_10_1", classes=classes)

def images():
    pixels = torch.randint(0, 256, (120, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    labels = torch.arange(120) % 3
    return Images(name="noise", classes=("a", "b", "c"), mean=(0.5,) * 3, std=(0.25,) * 3,
                  train_images=pixels.to(torch.uint8), train_labels=labels,
                  test_images=pixels.to(torch.uint8), test_labels=labels)
"""


def test_network_and_data_may_come_from_a_file_of_one_s_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    mine = tmp_path / "mine.py"
    (tmp_path / "own.toml").write_text(
        f'network = "{mine}:network"\ndata = "{mine}:images"\nepochs = 1\nbatch_size = 8\n'
        'optimiser = "adamw"\nlearning_rate = 0.01\nschedule = "one_cycle"\ncrop_padding = 1\nratio = 0.9\n'
        '[transform]\n"*" = "low_rank"\n'
    )
    flags = ["--ratio", "20%", "--out", tmp_path / "run"]
    done = run("train", tmp_path / "own.toml", *flags)
    assert done.code == 0, done.err
    assert "ratio=0.2" in done.text.split(" recipe ", 1)[0]
    refused = run("evaluate", tmp_path / "run")
    assert_refused(refused, "as its network, which would be called: --trust")
    tested = run("evaluate", tmp_path / "run", "--trust")
    assert tested.code == 0, tested.err
    assert " of 100" in tested.text


def test_the_default_folder_follows_from_the_settings(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1, 0):
        assert run("train", "demo", *SMALL, "--set", f"seed={seed}").code == 0
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_folder_of_another_run_is_refused_and_left_as_it_was(run: Run, teacher: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in teacher.iterdir() if path.is_file()}
    result = run("train", "demo", *SMALL, "--set", "seed=7", "--out", teacher)
    assert_refused(result, "belongs to another run", "seed 0 → 7")
    after = {path.name: path.stat().st_mtime_ns for path in teacher.iterdir() if path.is_file()}
    assert {key: after[key] for key in after if key != ".lock"} == {
        k: before[k] for k in before if k != ".lock"
    }


def test_a_run_goes_on_although_its_teacher_was_moved_but_not_with_another(
    run: Run, teacher: Path, tmp_path: Path
) -> None:
    def train(place: Path) -> Result:
        student = ["--transform", "shuffle", "--params", "9k", "--out", tmp_path / "student"]
        return run("train", "demo", *SMALL, *student, "--teacher", place)

    assert train(teacher).code == 0
    moved = teacher.rename(tmp_path / "moved")
    assert train(moved).code == 0
    other = tmp_path / "other"
    assert run("train", "demo", *SMALL, "--set", "seed=1", "--out", other).code == 0
    assert_refused(train(other), "belongs to another run", "another teacher")


def test_evaluate_agrees_with_the_end_of_training(run: Run, teacher: Path) -> None:
    result = TrainingRun.read(teacher).outcome()
    done = run("evaluate", teacher)
    assert done.code == 0, done.err
    errors = result.errors
    assert errors is not None
    assert errors.test_error is not None
    right = round(errors.test_images * (1 - errors.test_error / 100))
    assert f"{right:,} of {errors.test_images:,}" in done.text
    assert f"{errors.test_error:.2f} %" in done.text
    assert f"{result.params:,} parameters" in done.text


def test_evaluate_takes_a_file_of_weights_with_names_of_its_own(
    run: Run, teacher: Path, tmp_path: Path
) -> None:
    network = us.load(teacher / "model.safetensors", us.create_model("wrn_10_1"))
    save_file(
        {f"net.{key}": value for key, value in network.state_dict().items()}, tmp_path / "w.safetensors"
    )
    from_run = run("evaluate", teacher)
    from_file = run("evaluate", tmp_path / "w.safetensors", "--recipe", "demo", "--set", "network=wrn_10_1")
    assert from_file.code == 0, from_file.err
    assert from_file.text.split(" on ", 1)[1] == from_run.text.split(" on ", 1)[1]
    student = us.substitute(network, us.plan(network, "low_rank", ratio=0.2, example=torch.zeros(1, 3, 8, 8)))
    us.save(student, tmp_path / "student.safetensors")
    saved = run("evaluate", tmp_path / "student.safetensors", "--recipe", "demo", "--set", "network=wrn_10_1")
    assert saved.code == 0, saved.err


@pytest.mark.usefixtures("teacher")
def test_runs_lists_every_run_with_how_it_stands(run: Run, tmp_path: Path) -> None:
    diverged = run("train", "demo", *SMALL, "--set", "learning_rate=1e30", "--out", tmp_path / "wild")
    assert diverged.code == 1
    assert "diverged" in diverged.err
    assert "Traceback" not in diverged.err
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("[]")
    listed = run("runs", tmp_path)
    assert listed.code == 0
    lines = {line.split()[0]: line for line in listed.out.splitlines() if line.strip()}
    assert all(word in lines["teacher"] for word in ("wrn_10_1", "finished", "2/2", "%"))
    assert "diverged" in lines["wild"]
    assert "is not the settings of a run" in listed.text
    assert "wild: " in listed.text


def test_a_killed_run_is_stopped_and_goes_on_by_the_same_command(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    arguments = ["train", "demo", *SMALL, "--set", "epochs=500", "--out", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "understudy", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: len(list((folder / "checkpoints").glob("step-*"))) > 0)
        assert "running" in run("runs", tmp_path).out
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert "stopped" in run("runs", tmp_path).out

    def interrupted(*_: Any) -> float:
        signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
        raise AssertionError("the signal was swallowed")

    monkeypatch.setattr(Trainer, "step", interrupted)
    again = run(*arguments)
    assert again.err.startswith("going on from step")
    assert again.code == 130
    assert "the same command goes on" in again.out


def wait_for(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_torchrun_trains_with_two_processes_and_writes_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"),
            *("-m", "understudy", "train", "demo", *SMALL, "--set", "epochs=1", "--out", str(folder)),
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("epoch 1/1") == 1
    assert done.stdout.count("run: ") == 1
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1
    assert json.loads((folder / "status.json").read_text())["status"] == "finished"


def test_tensorboard_has_a_point_an_epoch_and_figure(run: Run, tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra `track` is not installed"
    )
    done = run("train", "demo", *SMALL, "--out", tmp_path / "run", "--tensorboard")
    assert done.code == 0, done.err
    events = event_accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"train/loss", "train/error", "test/error", "test/top5_error", "learning_rate"} <= set(
        events.Tags()["scalars"]
    )
    assert [point.step for point in events.Scalars("test/error")] == [3, 6]


def test_tensorboard_without_its_extra_names_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    result = run("train", "demo", *SMALL, "--out", tmp_path / "run", "--tensorboard")
    assert_refused_last_line(result, "understudy[track]")


def assert_refused_last_line(result: Result, word: str) -> None:
    assert result.code == 2
    assert "Traceback" not in result.err
    assert word in result.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dem"], ["no recipe 'dem'", "did you mean 'demo'", *recipe_names()]),
        (["demo", "--set", "epoch=3"], ["no setting 'epoch'", "'epochs'"]),
        (["demo", "--set", "epochs"], ["--set 'epochs' is not NAME=VALUE"]),
        (["demo", "--set", "epochs=many"], ["epochs is 'many', not a whole number"]),
        (["demo", "--transform", "low_rank"], ["needs a budget"]),
        (["demo", "-t", "low_rank", "-t", "Linear=shuffle"], ["give each a pattern", "'*=low_rank'"]),
        (["demo", "--set", "options=balanced"], ["options is 'balanced', not a table"]),
        (["demo", "--set", "optimiser=adam"], ["optimiser is 'adam', not one of sgd, adamw", "'adamw'"]),
        (["demo", "--set", "loss=mae"], ["loss is 'mae', not one of cross_entropy, mse", "'mse'"]),
        (["demo", "--set", "data=./none.py:make"], ["no data set './none.py:make': no file"]),
        (["demo", "--params", "20k"], ["needs a transform"]),
        (["demo", "--transform", "low_rank", "--params", "20k"], ["need a teacher"]),
        (["demo", "--transform", "lowrank", "--params", "20k", "--set", "attention=0"], ["low_rank"]),
        (["demo", "--transform", "low_rank", "--params", "3", "--set", "attention=0"], ["reachable"]),
        (["demo", "--teacher", "nowhere"], ["no teacher 'nowhere'"]),
        (["demo", "--set", "data=digit"], ["did you mean 'digits'"]),
        (["demo", "--set", "network=wrn_10"], ["no network 'wrn_10'"]),
        (["demo", "--set", "batch_size=2000"], ["2000"]),
        (["demo", "--device", "banana"], ["no device 'banana'"]),
        (["demo", "--device", "meta"], ["device 'meta' holds no values"]),
        (["demo", "--set", "auxiliary=1"], ["has no auxiliary head: leave auxiliary at 0"]),
        (["demo", "--set", "learning_rate=1e300"], ["learning_rate is 1e+300, above 1e+30"]),
        (["demo", "--set", "crop_padding=1000000000"], ["padding 1000000000 is more than the 8 pixels"]),
        (["demo", "--set", "data=cifar10", "--data", "nowhere"], ["nowhere"]),
        (["demo", "--set", "data=imagenet"], ["needs a folder"]),
        (["demo", "--set", "data=cifar10", "--data", "."], ["cifar10 is not there", "--download"]),
    ],
)
def test_bad_input_is_refused_with_the_reason_and_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("train", *arguments, "--out", tmp_path / "run")
    assert_refused(result, *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "nowhere"], ["nowhere", "--recipe"]),
        (["evaluate", "nowhere", "--recipe", "demo"], ["nowhere"]),
        (["evaluate", "."], ["holds no run"]),
        (["evaluate", "text.safetensors", "--recipe", "demo"], ["text.safetensors"]),
        (["runs", "nowhere"], ["no folder nowhere"]),
        (["runs", "."], ["no run under"]),
    ],
)
def test_what_is_not_there_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.safetensors").write_text("not weights")
    assert_refused(run(*arguments), *words)


def test_empty_data_are_refused(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"):
        (folder / name).touch()
    result = run("train", "demo", "--set", "data=cifar10", "--data", tmp_path, "--out", tmp_path / "run")
    assert_refused(result, "data_batch_1.bin", "0")
    assert not (tmp_path / "run").exists()


def test_a_teacher_that_does_not_fit_is_refused(run: Run, teacher: Path, tmp_path: Path) -> None:
    network = us.create_model("wrn_10_2")
    us.save(network, tmp_path / "wide.safetensors")
    student = ["--transform", "low_rank", "--params", "20k", "--out", tmp_path / "run"]
    wide = run("train", "demo", *SMALL, *student, "--teacher", tmp_path / "wide.safetensors")
    assert_refused(wide, "does not fit wrn_10_1 with 10 classes")
    us.save(us.create_model("wrn_10_1", classes=7), tmp_path / "seven.safetensors")
    seven = run("train", "demo", *SMALL, *student, "--teacher", tmp_path / "seven.safetensors")
    assert_refused(seven, "does not fit wrn_10_1 with 10 classes")
    TrainingRun.read(teacher).set_status("running")
    assert_refused(run("train", "demo", *SMALL, *student, "--teacher", teacher), "is running, not finished")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_at_a_checkpoint_leaves_the_last_one_and_no_scrap(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, steps = Trainer.step, 0

    def step(self: Any, *arguments: Any) -> float:
        nonlocal steps
        steps += 1
        if steps == 4:
            monkeypatch.setattr("understudy._util.files.os.fsync", full)
        return taken(self, *arguments)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Trainer, "step", step)
    folder = tmp_path / "run"
    result = run("train", "demo", *SMALL, "--out", folder)
    assert_refused_last_line(result, "No space left on device")
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == [
        "step-000000002.safetensors",
        "step-000000003.safetensors",
    ]
    assert leftovers(folder) == []
    monkeypatch.undo()
    done = run("train", "demo", *SMALL, "--out", folder)
    assert done.code == 0, done.err
    assert "going on from step 3" in done.err


@pytest.mark.parametrize("what", ["network", "teacher"])
def test_a_wrong_number_of_classes_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "seven.py").write_text(
        "import understudy as us\n"
        "def make(pretrained=True):\n    return us.create_model('wrn_10_1', classes=7)\n"
    )
    settings = [f"{what}=seven:make", "attention=0", "distillation=0.5"]
    flags = [word for setting in settings for word in ("--set", setting)]
    result = run("train", "demo", *SMALL, *flags, "--out", tmp_path / "run")
    assert_refused(result, "digits has 10 classes, but the network 7 outputs")
    assert not (tmp_path / "run").exists()


def test_a_timm_network_gets_the_classes_of_the_data(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("timm", reason="the extra `vision` is not installed")
    settings = ["network=timm:test_resnet.r160_in1k", "train_images=32", "epochs=1", "batch_size=16"]
    flags = [word for setting in settings for word in ("--set", setting)]
    done = run("train", "demo", *flags, "--out", tmp_path / "run")
    assert done.code == 0, done.err


def test_pretrained_weights_that_cannot_be_had_are_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timm = pytest.importorskip("timm", reason="the extra `vision` is not installed")

    def create(name: str, *, pretrained: bool) -> None:
        assert (name, pretrained) == ("resnet18", True)
        raise RuntimeError("no route to host")

    monkeypatch.setattr(timm, "create_model", create)
    student = ["--transform", "low_rank", "--params", "20k", "--teacher", "timm:resnet18"]
    result = run("train", "demo", *SMALL, *student, "--out", tmp_path / "run")
    assert_refused(result, "the weights of timm:resnet18 cannot be had: no route to host")


def test_a_recipe_file_may_leave_its_budget_and_teacher_to_flags(
    run: Run, teacher: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('transform = "low_rank"\nattention = 10.0\nmomentum = 0.9\nflip = false\n')
    done = run("train", file, *SMALL, "--params", "20k", "--teacher", teacher, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    shipped = done.text.split(" recipe ", 1)[1].split(" default ", 1)[0]
    assert "momentum=0.9" in shipped  # from the file, although it is the default


def test_a_teacher_that_looks_at_other_image_sizes_is_refused(run: Run, tmp_path: Path) -> None:
    settings = ["network=wrn_50_0.1", "taps=layer1,layer2", "teacher=" + str(tmp_path / "t.safetensors")]
    us.save(us.create_model("resnet20"), tmp_path / "t.safetensors")
    (tmp_path / "teacher.toml").write_text('network = "resnet20"\n')
    folder = tmp_path / "teacher"
    assert run("train", tmp_path / "teacher.toml", *SMALL[2:], "--set", "epochs=1", "--out", folder).code == 0
    settings[2] = f"teacher={folder}"
    flags = [word for setting in settings for word in ("--set", setting)]
    result = run("train", "demo", *SMALL[2:], *flags, "--out", tmp_path / "run")
    assert_refused(result, "at 'layer1' the student's image is")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_under_the_writer_of_tensors_is_told_in_one_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("understudy.students.tensors.save_file", full)
    result = run("train", "demo", *SMALL, "--set", "checkpoint_seconds=1000", "--out", tmp_path / "run")
    assert_refused_last_line(result, "No space left on device")
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert leftovers(tmp_path / "run") == []


def test_a_trained_network_is_not_changed_by_settings(run: Run, teacher: Path) -> None:
    assert_refused(
        run("evaluate", teacher, "--set", "network=wrn_40_2"),
        "network cannot change: the network is trained already",
    )


def test_a_damaged_status_is_named_and_hides_no_other_run(run: Run, teacher: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text((teacher / "config.json").read_text())
    (tmp_path / "broken" / "status.json").write_text("{")
    listed = run("runs", tmp_path)
    assert listed.code == 0
    assert "finished" in listed.out
    assert "broken/status.json is damaged" in listed.text


def test_a_network_with_few_channels_trains_in_a_layout_that_is_safe(run: Run, tmp_path: Path) -> None:
    flags = ["--set", "network=darts_1", "--set", "epochs=1", "--set", "attention=0"]
    done = run("train", "demo", *SMALL, *flags, "--set", "train_images=32", "--out", tmp_path / "run")
    assert done.code == 0, done.err
