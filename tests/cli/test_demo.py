"""The demo with tiny sizes: from nothing to the page, stopped and gone on with; one line for bad input."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_training import assert_refused

from command import Run
from understudy import data
from understudy.comparisons import Comparison
from understudy.data.digits import load_digits
from understudy.experiments import demo, demo_folder, quality
from understudy.train.trainer import Trainer

SMALL = [
    *("--set", "network=wrn_10_1", "--set", "epochs=1", "--set", "batch_size=32"),
    *("--ratio", "50%", "--recover", "1"),
]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few images and short timings, in a folder of its own."""
    monkeypatch.setattr(data, "load_digits", lambda: load_digits().take(train=64, test=32))
    monkeypatch.setattr(demo, "_ROUNDS", 1)
    slow = SimpleNamespace(epochs=[SimpleNamespace(seconds=1e3)])  # so that one epoch is all that fits
    monkeypatch.setattr(demo, "fit", lambda _: slow)
    monkeypatch.setattr(quality, "_ROUNDS", 1)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_demo_goes_from_nothing_to_a_page_and_after_a_stop_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = Trainer.step, []

    def interrupted(self: Trainer, *arguments: Any) -> float:
        steps.append(1)
        if len(steps) == 4:  # the original had two
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "step", interrupted)
    stopped = run("demo", *SMALL)
    assert stopped.code == 130
    assert stopped.err.endswith("stopped; the same command goes on\n")
    assert not Path("runs/demo/student").exists()

    done = run("demo", *SMALL)
    assert done.code == 0, done.err
    assert "has finished already" in done.err  # the original
    assert re.search(r"yes: fewer parameters, 2\.0 ×", done.text)
    assert "Beside narrower dense (wrn_10_0." in done.text
    assert done.out.endswith(f"{Path('runs/demo/index.html')}\n")
    found = Comparison.load("runs/demo")
    roles = ["original", "compressed", "student", "narrower", "taught"]
    assert [one.role for one in found.contenders] == roles
    assert [call.batch for call in found.of("student").calls] == [1, 32]
    for one in found.contenders:
        if one.role != "compressed":
            assert one.bytes == Path(f"runs/demo/{one.role}.onnx").stat().st_size
    spent = {one.role: one.seconds for one in found.contenders}
    assert spent["original"] < spent["compressed"] <= spent["student"]
    page = Path("runs/demo/index.html").read_text(encoding="utf-8")
    for link in re.findall(r"<li><a href='([^']+)'", page):
        assert Path("runs/demo", link).is_file(), link

    monkeypatch.setattr(Trainer, "step", None)
    again = run("demo", *SMALL)
    assert (again.code, again.out) == (0, done.out)
    assert "is finished already" in again.err
    assert_refused(run("demo", *SMALL, "--seed", 1), "holds another demo (seed 0 → 1)", "--force begins anew")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "file"], "file is a file: choose another --out"),
        (["--out", "full"], "full is not empty and holds no demo"),
        (["--out", "odd"], "it holds [], not a table"),
        (["--transform", "lowrank"], "did you mean 'low_rank'"),
        (["--ratio", "much"], "--ratio 'much' is not a number"),
        (["--ratio", "2"], "ratio"),
        (["--set", "network=resnet20"], "'resnet20' has no narrower form"),
        (["--set", "epoch=3"], "no setting 'epoch'"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_trained(run: Run, arguments: list[str], words: str) -> None:
    Path("file").write_text("")
    for name, file in (("full", "thesis.txt"), ("odd", demo_folder.FILE)):
        Path(name).mkdir()
        Path(name, file).write_text("[]")
    assert_refused(run("demo", *arguments), words)
    assert not Path("runs").exists()


@pytest.mark.parametrize("package", demo.PACKAGES)
def test_a_package_that_is_missing_is_named_with_the_extra_that_brings_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert_refused(run("demo"), f"the demo needs {package}", "pip install 'understudy[demo]' brings it")


def test_the_time_of_a_step_adds_up_over_interruptions_and_force_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(demo_folder, "monotonic", lambda: float(next(ticks)))
    out, asked = tmp_path / "out", demo.Demo()
    for seconds in (1.0, 3.0):  # one until it is told something, one until it stops
        folder = demo_folder.DemoFolder(out, asked)
        folder.begin()
        with contextlib.suppress(KeyboardInterrupt), folder.timed("original", lambda _: None) as tell:
            tell("an epoch")
            assert demo_folder.DemoFolder(out, asked).seconds == {"original": seconds}
            raise KeyboardInterrupt
    assert demo_folder.DemoFolder(out, asked).seconds == {"original": 4.0}
    assert demo_folder.DemoFolder(out, asked, force=True).seconds == {}
    assert not out.exists()
