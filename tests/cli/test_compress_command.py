"""The command that compresses: its folder, its curve, recovery that goes on, and one line for bad input."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_training import assert_refused

import understudy as us
from command import Run
from understudy import data
from understudy._util.records import write_record
from understudy.compressions import Compressed, Student
from understudy.data import found
from understudy.experiments import quality
from understudy.experiments.tradeoff import Tradeoff
from understudy.train.trainer import Trainer

FILE = """
import math
import torch
from torch import nn
import understudy as us

class Small(nn.Module):
    def __init__(self, first=8):
        super().__init__()
        self.first, self.hidden, self.more = nn.Linear(first, 24), nn.Linear(24, 24), nn.Linear(24, 24)
        self.never, self.last = nn.Linear(24, 24), nn.Linear(24, 4)
    def forward(self, x):
        return self.last(torch.relu(self.more(torch.relu(self.hidden(torch.relu(self.first(x)))))))

def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Small()

def broken():
    made = network()
    with torch.no_grad():
        made.hidden.weight.fill_(math.nan)
    return made

def student():
    made = network()
    return us.substitute(made, us.plan(made, "low_rank", ratio=0.6))

def batches():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(16, 8, generator=generator) for _ in range(16)]

def labelled():
    return [(x, network()(x).argmax(1)) for x in batches()]

def few():
    return batches()[:2]

def wide():
    return [torch.randn(4, 9) for _ in range(4)]

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 16)
        self.first, self.hidden, self.last = nn.Linear(16, 24), nn.Linear(24, 24), nn.Linear(24, 16)
    def forward(self, input_ids, attention_mask):
        x = torch.relu(self.first(self.table(input_ids)))
        return {"last_hidden_state": self.last(torch.relu(self.hidden(x)))}

def words():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Words()

def texts():
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(0, 20, (8, 6), generator=generator) for _ in range(8)]
    return [{"input_ids": x, "attention_mask": torch.ones_like(x).tril(2)} for x in ids]

def nothing():
    return []

def number():
    return 3
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds of the clock, and 100 of the 500 digits that are kept for testing."""
    monkeypatch.setattr(quality, "_ROUNDS", 1)
    load = data.load
    monkeypatch.setattr(found, "load", lambda *a, **k: load(*a, **k).take(train=256, test=100))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network for digits, trained for a moment."""
    digits = data.load("digits").take(train=640)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = us.create_model("wrn_10_1")
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for x, y in digits.train_batches(64, seed=0).epoch(0):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    path = tmp_path_factory.mktemp("weights") / "digits.safetensors"
    us.save(model.eval(), path)
    return path


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path / "mine.py"


def executed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the code of the card leaves, run in the folder."""
    match = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(match[1], names)
    return names


# What is told while a network is looked at, before a budget may turn out to be too small.
STAGES = {
    *("looking at the inputs of the layers", "looking at what their outputs are worth"),
    *("trying an error of each layer", "planning", "testing the original"),
}


def test_one_student_and_all_that_is_to_know_of_it(
    run: Run, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "small"
    monkeypatch.setenv("COLUMNS", "60")
    done = run("compress", "wrn_10_1", "--weights", weights, "--ratio", 0.5, "--data", "digits", "--out", out)
    assert done.code == 0, done.err
    told = done.err.splitlines()
    assert len(told) == len(set(told)), "a line for every stage, once"
    assert told.index("looking at the inputs of the layers") < told.index("fitting layer after layer")
    assert "low_rank-50" in done.out
    assert f" {Compressed.load(out).students[0].costs.params:,} " in done.out  # no number is cut
    assert "accuracy %" in done.out
    assert not {"bytes", "cosine"} & set(done.out.split())
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "compress.json", "index.html", "plan.json", "student.safetensors",
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    result = Compressed.load(out)
    (student,) = result.students
    assert student.costs.params <= 0.5 * result.original.params == 0.5 * 77_850
    assert student.costs.bytes == (out / "student.safetensors").stat().st_size
    assert result.measure == "accuracy"
    assert result.quality.samples == 100
    assert result.quality.agreement == 100
    assert (student.quality.agreement or 0) > 90
    assert {one.path for one in result.skipped} == {"stem", "head"}
    assert len(student.layers) == result.calibration.layers == 8
    assert all(layer.error is not None and layer.error < 0.5 for layer in student.layers)
    assert student.steps[0].name == "fitted to the weights alone"
    assert_refused(run("export", out, "--out", tmp_path / "8.onnx", "--int8"), "needs data to calibrate by")
    names = executed(out, monkeypatch)
    assert names["outputs"].shape == (1, 10)
    assert us.Plan.load(out / "plan.json").params == student.costs.params
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "stage1.0.conv1" in page
    again = run(
        "compress", "wrn_10_1", "--weights", weights, "--ratio", 0.5, "--data", "digits", "--out", out
    )
    assert_refused(again, "is not empty", "--force")
    forced = ["--ratio", 0.6, "--data", "digits", "--out", out, "--force", "--samples", 64]
    assert run("compress", "wrn_10_1", "--weights", weights, *forced).code == 0
    assert Compressed.load(out).students[0].name == "low_rank-60"


def test_a_curve_without_labels_says_how_much_students_agree(
    run: Run, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "curve"
    arguments = [
        "--data",
        f"{mine}:batches",
        "--ratios",
        "0.8,60%,0.001",
        "--transform",
        "low_rank,hashed,auto",
    ]
    done = run("compress", f"{mine}:network", *arguments, "--out", out)
    assert done.code == 0, done.err
    result = Compressed.load(out)
    assert [student.folder for student in result.students] == [
        "low_rank-80", "low_rank-60", "hashed-80", "hashed-60", "auto-80", "auto-60",
    ]  # fmt: skip
    assert [one.name for one in result.refused] == ["low_rank-0.1", "hashed-0.1", "auto-0.1"]
    assert result.measure == "agreement"
    assert result.quality.accuracy is None
    assert result.calibration.idle == ("never",)
    assert "never never ran on the data: fitted plainly" in done.out
    assert all((out / student.folder / "student.safetensors").is_file() for student in result.students)
    assert executed(out, monkeypatch)["student"](torch.zeros(1, 8)).shape == (1, 4)
    file = tmp_path / "one.pt2"
    assert_refused(run("export", out, "--out", file), "several students: give the folder of one", "auto-80")
    assert_refused(run("export", out / "hashed-60", "--out", file), "--trust")
    assert run("export", out / "hashed-60", "--out", file, "--trust").code == 0
    assert file.is_file()
    (out / "other").mkdir()
    assert_refused(run("export", out / "other", "--out", tmp_path / "2.pt2"), "other holds no run")
    monkeypatch.chdir(out / "low_rank-80")
    assert run("export", ".", "--out", tmp_path / "3.pt2", "--trust").code == 0


def test_labels_of_a_factory_count(run: Run, mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    done = run("compress", f"{mine}:network", "--data", f"{mine}:labelled", "--bytes", "8kB", "--out", out)
    assert done.code == 0, done.err
    result = Compressed.load(out)
    assert result.quality.accuracy == 100
    assert (out / "student.safetensors").stat().st_size <= 8_000 < result.original.bytes
    file = ("--out", tmp_path / "8.onnx", "--int8", "--data", f"{mine}:labelled", "--trust")
    exported = run("export", out, *file, "--test-samples", 24)
    assert exported.code == 0, exported.err
    assert "of 24 test samples" in exported.text
    assert "before eight bits 100.0 %" in exported.text


def test_a_network_for_text_is_held_against_its_own_vectors(run: Run, mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    arguments = ["--data", f"{mine}:texts", "--ratio", 0.8, "--recover", 2, "--test-samples", 5, "--out", out]
    done = run("compress", f"{mine}:words", *arguments)
    assert done.code == 0, done.err
    result = Compressed.load(out)
    assert result.measure == "cosine"
    assert result.quality.samples == 5
    assert result.students[0].final.cosine > 0.9
    assert "import torch" not in (out / "README.md").read_text(encoding="utf-8")


def test_a_killed_recovery_goes_on_and_ends_the_same(
    run: Run, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["compress", f"{mine}:network", "--data", f"{mine}:batches", "--ratio", 0.6, "--recover", 3]
    arguments += ["--set", "checkpoint_seconds=0", "--out"]
    assert run(*arguments, tmp_path / "whole").code == 0
    out = tmp_path / "small"
    steps: list[int] = []
    take = Trainer.step

    def stopping(self: Any, *given: Any) -> float:
        steps.append(1)
        if len(steps) == 20:
            raise KeyboardInterrupt
        return take(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopping)
        stopped = run(*arguments, out)
    assert stopped.code == 130
    assert "the same command goes on" in stopped.err
    assert not out.exists()
    other = run(*arguments, out, "--samples", 32)
    assert_refused(other, "small.part is left of another compression with another settings")
    with monkeypatch.context() as patch:  # no student is made twice
        patch.setattr(Tradeoff, "student", None)
        done = run(*arguments, out)
    assert done.code == 0, done.err
    assert "going on from step 19" in done.err
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py", "small", "whole"}
    (whole,), (student,) = (Compressed.load(folder).students for folder in (tmp_path / "whole", out))
    assert student.recovery is not None
    assert whole.recovery is not None
    assert student.recovery.epochs == 3
    assert student.recovery.quality == whole.recovery.quality
    assert student.final.cosine > 0.99
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "compress.json", "index.html", "plan.json", "student.safetensors",
    ]  # fmt: skip
    names = ["student.safetensors", "plan.json"]
    assert [(out / name).read_bytes() for name in names] == [
        (tmp_path / "whole" / name).read_bytes() for name in names
    ]


@pytest.mark.parametrize("moment", ["before its record", "after its record"])
def test_killed_while_a_recovered_student_is_written_it_ends_the_same(
    moment: str, run: Run, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["compress", f"{mine}:network", "--data", f"{mine}:batches", "--ratio", 0.6, "--recover", 3]
    assert run(*arguments, "--out", tmp_path / "whole").code == 0
    replace = Path.replace

    def killed(*given: Any) -> None:
        if isinstance(given[1], Student) and given[1].recovery is not None:
            raise KeyboardInterrupt
        write_record(*given)

    def cut(self: Path, target: Path) -> Path:
        if self.name == ".student.safetensors" and target.exists():
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        if moment == "before its record":
            patch.setattr("understudy.experiments.unfinished.write_record", killed)
        else:
            patch.setattr(Path, "replace", cut)
        assert run(*arguments, "--out", tmp_path / "small").code == 130
    assert run(*arguments, "--out", tmp_path / "small").code == 0
    (whole,), (student,) = (Compressed.load(tmp_path / name).students for name in ("whole", "small"))
    assert whole.recovery is not None
    assert student.recovery is not None
    assert (student.recovery.kept, student.quality, student.recovery.quality) == (
        whole.recovery.kept,
        whole.quality,
        whole.recovery.quality,
    )
    made, wanted = ((tmp_path / name / "student.safetensors").read_bytes() for name in ("small", "whole"))
    assert made == wanted


OVERFITTED = """
import torch
from torch import nn

def drawn(count, seed):
    return torch.randn(count, 16, generator=torch.Generator().manual_seed(seed))

def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    for layer in layers[::2]:
        generator = torch.Generator().manual_seed(1)
        nn.init.normal_(layer.weight, std=3 * layer.in_features**-0.5, generator=generator)
    return nn.Sequential(*layers).eval()

def batches():
    return [*drawn(72, 1).split(8), drawn(1000, 5)]
"""


def test_a_recovery_that_only_learns_its_inputs_by_heart_is_undone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "heart.py").write_text(OVERFITTED)
    names = [f"{tmp_path}/heart.py:network", "--data", f"{tmp_path}/heart.py:batches", "--ratio", 0.5]
    out = tmp_path / "small"
    done = run("compress", *names, "--recover", 30, "--set", "learning_rate=0.01", "--out", out)
    assert done.code == 0, done.err
    (student,) = Compressed.load(out).students
    assert student.recovery is not None
    assert student.recovery.quality.cosine < student.quality.cosine
    assert not student.recovery.kept
    assert "% after recovery, undone" in done.err
    assert ", undone" in done.out


def test_a_student_whose_recovery_diverges_is_kept_as_it_was_fitted(
    run: Run, mine: Path, tmp_path: Path
) -> None:
    names = (f"{mine}:network", "--data", f"{mine}:batches", "--ratio", 0.6, "--out", tmp_path / "small")
    done = run("compress", *names, "--recover", 3, "--set", "learning_rate=1e30")
    assert done.code == 0, done.err
    assert not list(tmp_path.glob("small/**/recovery"))
    result = Compressed.load(tmp_path / "small")
    assert result.students[0].recovery is None
    assert "is as it was fitted, for its recovery diverged: " in result.notes[0]


def test_a_recovery_by_another_optimiser_is_exported(run: Run, mine: Path, tmp_path: Path) -> None:
    names = [f"{mine}:network", "--data", f"{mine}:batches", "--ratio", 0.6, "--out", tmp_path / "small"]
    done = run("compress", *names, "--recover", 1, "--set", "optimiser=sgd", "--set", "learning_rate=1e-4")
    assert done.code == 0, done.err
    exported = run("export", tmp_path / "small", "--out", tmp_path / "small.pt2", "--trust")
    assert exported.code == 0, exported.err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"--data": None}, ("give inputs to look at: --data",)),
        ({"--data": "nowhere"}, ("no data 'nowhere'", "package.module:factory")),
        ({"--data": "mine.py:nothing"}, ("gave 0 batches",)),
        ({"--data": "mine.py:number"}, ("gave a int: neither a DataSet nor batches",)),
        ({"--data": "mine.py:absent"}, ("mine.py:absent", "does not exist")),
        ({"--data": "mine.py:wide"}, ("Small cannot run on an example of shape [(1, 9)]",)),
        ({"model": "mine.py:broken"}, ("the input of 'more' holds NaN or infinity",)),
        ({"model": "mine.py:student"}, ("Small holds stand-ins already",)),
        ({"model": "wrn_10_1"}, ("wrn_10_1 comes without weights",)),
        ({"model": "wrn_10_1", "--weights": "mine.py"}, ("mine.py is not a whole safetensors file",)),
        ({"model": "wrn_10_1", "--weights": "gone.pt"}, ("no file of weights 'gone.pt'",)),
        ({"--ratio": "0.001"}, ("below",)),
        ({"--ratio": "2"}, ("ratio '2' is not in 0..1",)),
        ({"--ratio": None}, ("give one of --ratios, --ratio, --params, --mult-adds, --bytes; got none",)),
        ({"--ratio": None, "--ratios": "0.9,x"}, ("--ratios 'x' is not a number such as 0.3 or 30%",)),
        ({"--ratios": "0.9"}, ("--ratios is a budget already",)),
        ({"--transform": "low_rnk"}, ("low_rnk", "low_rank")),
        ({"--set": "epochs=3"}, ("--set epochs is not for compress",)),
        ({"--set": "rate=3"}, ("no setting 'rate'",)),
        ({"--set": "learning_rate=3"}, ("--set learning_rate is of recovery", "--recover")),
        ({"--input": "9"}, ("--input 9 does not fit", "mine.py:batches have the shape 8")),
        ({"--out": None}, ("give a folder for the student: --out",)),
        ({"--out": "taken"}, ("taken is not empty",)),
        ({"--out": "no/where"}, ("no folder no to make where in",)),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    changes: dict[str, str | None],
    words: tuple[str, ...],
    run: Run,
    mine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    shutil.copy(mine, tmp_path / "taken" / "file.py")
    arguments: dict[str, str | None] = {
        "model": "mine.py:network",
        "--data": "mine.py:batches",
        "--ratio": "0.6",
        "--out": "small",
        **changes,
    }
    flags = [part for name, value in arguments.items() if value and name != "model" for part in (name, value)]
    done = run("compress", str(arguments["model"]), *flags)
    *stages, said = done.err.splitlines(keepends=True)
    assert {*map(str.strip, stages)} <= STAGES
    assert_refused(dataclasses.replace(done, err=said), *words)
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py", "taken"}


def test_the_folder_where_the_command_is_typed_is_filled(
    run: Run, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    names = [f"{mine}:network", "--data", f"{mine}:few", "--quick", "--ratio", 0.7]
    done = run("compress", *names, "--out", ".")
    assert done.code == 0, done.err
    assert Compressed.load(Path()).students


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_fitted(
    run: Run, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.part").write_text("in the way")
    monkeypatch.setattr("understudy.experiments.compressing.Tradeoff", None)
    names = [f"{mine}:network", "--data", f"{mine}:few", "--ratio", 0.7, "--out", tmp_path / "small"]
    assert_refused(run("compress", *names), "small.part")


def test_few_samples_are_said(run: Run, mine: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    done = run("compress", f"{mine}:network", "--data", f"{mine}:few", "--ratio", 0.7, "--out", out)
    assert done.code == 0, done.err
    assert "hidden saw fewer vectors than it has dimensions: regularised" in done.out
    assert Compressed.load(out).calibration.short == ("hidden", "more")
