"""Engines: workers that are killed, sweeps that are killed, and what the same command makes of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from command import Run
from sweeps import LOW_RANK, TEACHER, TOML, InlineEngine, holders, quickly, tiny, without_clock
from understudy.cli.experiments import line
from understudy.experiments import (
    Event,
    LocalEngine,
    RayEngine,
    Task,
    local,
    ray_engine,
    read_results,
    sweep,
)

SECONDS = 120.0  # to wait for anything, on a machine that is busy with other things


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """One thread, as small networks are slower on many and bits may depend on it; few turns of timing."""
    with quickly():
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nothing disturbed."""
    out = tmp_path_factory.mktemp("unbroken") / "sweep"
    sweep(tiny(), out, engine=InlineEngine())
    return out


def until(true: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so."""
    given_up = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < given_up, "it never came"
        if process is not None:
            assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def task(folder: Path, epochs: int) -> Task:
    return Task(TEACHER, tiny().cells[0].recipe.replaced({"epochs": epochs}), str(folder), None, 1)


def test_a_task_outlives_one_worker_and_fails_with_the_signal_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalEngine(1, tmp_path / "log") as engine:
        engine.start(task(tmp_path / "run", epochs=3))
        assert "epoch 1/3" in engine.wait().text
        engine._workers[0].process.kill()
        messages = [engine.wait()]
        while messages[-1].status is None:
            messages.append(engine.wait())
        assert messages[-1].status.state == "finished"
        texts = " ".join(message.text for message in messages)
        assert "killed by SIGKILL; going on in another" in texts
        assert "going on from step" in texts
        assert len(engine._workers) == 1

        monkeypatch.setattr(local, "_ATTEMPTS", 1)
        engine._attempts.clear()
        engine.start(task(tmp_path / "other", epochs=1000))
        engine.wait()
        engine._workers[0].process.send_signal(signal.SIGSEGV)
        last = engine.wait()
        while last.status is None:
            last = engine.wait()
        assert last.status.state == "failed"
        assert last.status.reason.startswith("the worker was killed by SIGSEGV")
        assert "Segmentation fault" in (tmp_path / "log").read_text()


def test_an_engine_without_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="0 workers: at least 1"):
        LocalEngine(0, tmp_path / "log")
    with pytest.raises(ValueError, match="0 workers: at least 1"):
        RayEngine(0)
    with pytest.raises(ValueError, match="-1 GPUs"):
        RayEngine(1, -1)


def test_workers_share_the_threads_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert [LocalEngine(workers, tmp_path / "log").threads for workers in (1, 3, 9)] == [8, 2, 1]


class PretendedRay:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.started: dict[str, Any] = {}
        self.asked: dict[str, Any] = {}

    def init(self, **options: Any) -> None:
        self.started = options

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 64.0}

    def remote(self, **options: Any) -> Callable[[object], object]:
        self.asked = options
        return lambda function: function

    def shutdown(self) -> None:
        pass


@pytest.mark.parametrize(
    ("address", "workers", "threads", "places"),
    [(None, 1, 8, 8), (None, 3, 2, 6), ("10.0.0.1:6379", 1, 1, None), ("10.0.0.1:6379", 4, 1, None)],
)
def test_a_task_of_ray_has_as_many_threads_as_cpus(
    monkeypatch: pytest.MonkeyPatch, address: str | None, workers: int, threads: int, places: int | None
) -> None:
    ray = PretendedRay()
    monkeypatch.setattr(ray_engine, "_import_ray", lambda: ray)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address is not None:
        monkeypatch.setenv("RAY_ADDRESS", address)
    with RayEngine(workers) as engine:
        assert engine.threads == ray.asked["num_cpus"] == threads
        assert ray.started.get("num_cpus") == places


def test_a_missing_ray_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'understudy\[ray\]'"):
        RayEngine(1)


@contextmanager
def command(tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`understudy sweep` of the tiny grid in a process of its own, which does not outlive a failed test.

    Ray's workers step back behind all else that runs unless told not to: beside other tests they starve.
    """
    (tmp_path / "tiny.toml").write_text(TOML)
    with subprocess.Popen(
        [sys.executable, "-m", "understudy", "sweep", "tiny.toml", "--out", "out", *options],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_sweep_stopped_and_killed_ends_like_one_that_nothing_disturbed(
    tmp_path: Path, unbroken: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.chdir(tmp_path)

    def interrupt(event: Event) -> str:
        if event.kind == "progress":
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
        return line(event)

    def begun(cell: str) -> bool:
        return any((out / "runs" / cell / "checkpoints").glob("step-*"))

    (tmp_path / "tiny.toml").write_text(TOML)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.cli.experiments.line", interrupt)
        stopped = run("sweep", "tiny.toml", "--out", "out")
    assert stopped.code == 130, stopped.err
    assert "the same command goes on" in stopped.err
    assert "Traceback" not in stopped.err
    assert begun(TEACHER)
    assert not holders(out / "runs" / TEACHER / ".lock")

    with command(tmp_path) as killed:
        until(lambda: begun(LOW_RANK), killed)
        killed.kill()
        killed.communicate(timeout=SECONDS)
    until(lambda: not holders(out / "runs" / LOW_RANK / ".lock"))  # no worker outlives its sweep
    statuses = {result.name: result.status.state for result in read_results(out)}
    assert (statuses[TEACHER], statuses[LOW_RANK]) == ("finished", "waiting")

    sweep(tiny(), out, engine=InlineEngine())
    assert without_clock(out) == without_clock(unbroken)
    for cell in without_clock(out):
        weights = [folder / "runs" / cell / "model.safetensors" for folder in (out, unbroken)]
        assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.slow
def test_ray_runs_the_same_cells_and_outlives_a_killed_worker(tmp_path: Path, unbroken: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra 'ray'")
    out = tmp_path / "out"
    lock = out / "runs" / TEACHER / ".lock"
    with command(tmp_path, "--engine", "ray") as process:
        until(lambda: any((out / "runs" / TEACHER / "checkpoints").glob("step-*")), process)
        pids = holders(lock)
        assert len(pids) == 1
        os.kill(pids[0], signal.SIGKILL)
        output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert LOW_RANK in output
    assert "queued" in errors
    assert without_clock(out) == without_clock(unbroken)
