"""What the command writes, wherever that goes: an output of few characters, a reader who leaves."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import understudy_command
from command import Run
from understudy.cli import app
from understudy.cli.output import holdable, prepare_streams

TESTS = Path(__file__).parents[1]
SMALL = ("epochs=1", "train_images=32", "batch_size=32", "network=wrn_10_1")
SET = [word for setting in SMALL for word in ("--set", setting)]
GRID = """
recipe = "demo"
networks = "wrn_10_1"
[settings]
epochs = 1
train_images = 32
batch_size = 32
[[students]]
transforms = ["low_rank"]
ratio = 0.1
"""
NETWORK = """
import torch
from torch import nn

def network():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))

def batches():
    return [torch.randn(8, 8) for _ in range(4)]
"""
# Every command, in an order in which each finds what those before it have left.
COMMANDS: Mapping[str, tuple[list[str], ...]] = {
    "transforms": (["--markdown"], []),
    "sites": (["wrn_10_1"],),
    "plan": (["wrn_10_1", "-t", "low_rank", "--ratio", "50%", "--json", "plan.json"],),
    "cost": (["wrn_10_1", "--plan", "plan.json"],),
    "train": (["demo", *SET, "--out", "run"],),
    "evaluate": (["run"],),
    "runs": (["."],),
    "export": (["run", "--out", "run.pt2"],),
    "compress": (
        ["made.py:network", "--data", "made.py:batches", "--ratio", "0.7", "--out", "small", "--input", "8"],
    ),
    "sweep": (["grid.toml", "--plan-only"], ["grid.toml", "--out", "sweep"]),
    "status": (["sweep"],),
    "report": (["sweep"],),
    "demo": (["--help"],),
    "bench": (["--limit", "0", "--out", "bench.json"],),
}


# Runs commands in turn, in one process, as importing torch takes longer than most of them.
SCRIPT = """
import sys
from sweeps import InlineEngine
from understudy.cli import main
from understudy.experiments import runner, speed
runner.LocalEngine, speed._ROUNDS = lambda *_: InlineEngine(), 1
for line in open("commands"):
    sys.argv = ["understudy", *line.split()]
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    print("##", code, *sys.argv[1:3])
"""


def test_the_list_of_commands_is_whole() -> None:
    known = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    assert known == COMMANDS.keys()


@pytest.mark.slow
def test_every_command_prints_to_an_output_of_ascii(tmp_path: Path) -> None:
    lines = [[name, *arguments] for name, calls in COMMANDS.items() for arguments in calls]
    lines += [["plan", "--help"], ["plan", "wrn_10_1", "-t", "low_rank", "--params", "1"]]
    (tmp_path / "grid.toml").write_text(GRID)
    (tmp_path / "made.py").write_text(NETWORK)
    (tmp_path / "commands").write_text("\n".join(" ".join(line) for line in lines))
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, check=True
    )
    out, err = done.stdout.decode("ascii"), done.stderr.decode("ascii")
    codes = [line.split()[1] for line in out.splitlines() if line.startswith("## ")]
    assert codes == ["0"] * (len(lines) - 1) + ["2"], err
    for words in ("3x3 16 -> 32", "W, out x in", "in * out parameters", "made.py:network"):
        assert words in out
    assert "Traceback" not in err
    assert "error: low_rank on WideResNet" in err
    # What is spelt out is spelt before columns are laid out.
    rows = out.splitlines()
    (head,) = (line for line in rows if line.split()[:3] == ["module", "type", "shape"])
    (row,) = (line for line in rows if "3x3 16 -> 32" in line and "Conv2d" in line and "yes" in line)
    assert head.index("shape") == row.index("3x3")


def test_help_is_laid_out_by_the_width_of_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    told = run("demo", "--help").out.partition("Options")[0]
    first = next(line.strip() for line in told.splitlines() if line.strip().startswith("It is"))
    assert len(first) > 85, told


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("utf-8", "3×3 16 → 32, W = Σ Gᵀ x̄ “é” \u4e16"),
        ("cp1252", "3×3 16 -> 32, W = sigma GT x “é” ?"),
        ("ascii", '3x3 16 -> 32, W = sigma GT x "e" ?'),
    ],
)
def test_only_what_an_encoding_lacks_is_spelt_out(
    monkeypatch: pytest.MonkeyPatch, encoding: str, written: str
) -> None:
    held = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(held, encoding=encoding))
    prepare_streams()
    print("3×3 16 → 32, W = Σ Gᵀ x̄ “é” \u4e16", end="", flush=True)
    assert held.getvalue().decode(encoding) == written
    assert holdable("→") == ("→" if encoding == "utf-8" else "->")


def test_an_interrupt_before_anything_is_imported_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "understudy").mkdir()
    (tmp_path / "understudy" / "__init__.py").write_text("raise KeyboardInterrupt")
    start = Path(understudy_command.__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(start)])}
    done = subprocess.run(
        [sys.executable, "-c", "import understudy_command; understudy_command.main()"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, b"")


@pytest.mark.skipif(os.name != "posix", reason="another kind of pipe")
def test_a_reader_who_leaves_ends_it_quietly_after_what_was_asked_for(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    plan = ["plan", "wrn_10_1", "-t", "low_rank", "--ratio", "0.5", "--json", "plan.json"]
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *plan],
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
    assert (tmp_path / "plan.json").is_file()
