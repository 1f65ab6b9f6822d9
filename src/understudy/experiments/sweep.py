"""Sweep: train every cell of a grid, teachers first; whatever stops it, the same call goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from .cell import Cell
from .checks import GridError
from .engine import Engine
from .grid import Grid
from .local import LocalEngine
from .planning import PlannedCell, plan_cells
from .ray_engine import RayEngine
from .results import Result, new_result, read_index, read_results, with_outcome, write_index, write_result
from .speed import measure_speeds
from .task import Outcome, Task, commit

EngineName = Literal["local", "ray"]
_SETTLED = ("finished", "diverged", "unreachable")  # a failed cell is tried again, a diverged one would again


@dataclasses.dataclass(frozen=True)
class Event:
    """What a sweep tells while it runs: a cell's new status, or a line of its progress."""

    kind: Literal["kept", "started", "progress", "finished", "diverged", "failed", "measured"]
    cell: str
    text: str
    done: int
    total: int


Report = Callable[[Event], None]


def sweep(
    grid: Grid,
    out: Path,
    *,
    workers: int = 1,
    engine: EngineName = "local",
    gpus_per_cell: float | None = None,
    data_folder: Path | None = None,
    report: Report = lambda _: None,
) -> list[Result]:
    """Train all cells of a grid into the folder `out`, or go on with what is there; returns the results.

    Every cell is planned before anything is trained. Finished cells are never repeated and killed ones go on
    from their checkpoint. A cell that diverges or fails is recorded with its reason and stops no other; the
    next call tries failed ones again, but not diverged ones. The students of a teacher that did not finish
    fail with its reason. At the end the speed of all finished networks is measured.
    """
    planned = plan_cells(grid, data_folder)
    with _opened(out, grid):
        results = _prepare(grid, out, planned)
        runner: Engine = (
            LocalEngine(workers, out / "workers.log")
            if engine == "local"
            else RayEngine(workers, gpus_per_cell)
        )
        _Sweep(out.resolve(), results, data_folder, max(1, (os.cpu_count() or 1) // workers), report).run(
            grid.cells, runner
        )
        measure_speeds(out, data_folder)
        return read_results(out)


@contextlib.contextmanager
def _opened(out: Path, grid: Grid) -> Iterator[None]:
    """Make the folder this grid's, and keep other sweeps out of it."""
    if out.exists() and not out.is_dir():
        raise GridError(f"{out} is a file: choose another --out")
    if out.is_dir() and not (out / "grid.json").exists():
        strange = [path.name for path in out.iterdir() if path.name != ".lock" and ".grid.json." not in path.name]
        if strange:
            raise GridError(f"{out} holds no sweep but {strange[0]}: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GridError(f"another sweep is at work in {out}") from None
        _claim(out, grid)
        yield


def _claim(out: Path, grid: Grid) -> None:
    """Refuse a folder of another grid; one whose cells are all in this grid is taken up, and grows."""
    ids = {cell.name: cell.id for cell in grid.cells}
    if (out / "grid.json").exists():
        held: dict[str, str] = read_index(out)["ids"]
        changed = sorted(name for name, identity in held.items() if ids.get(name) != identity)
        if changed:
            what = "are not the same in" if set(changed) & set(ids) else "are not in"
            raise GridError(
                f"{out} belongs to another grid: {len(changed)} of its {len(held)} cells {what} {grid.name}, "
                f"such as {changed[0]}; choose another --out"
            )
    for folder in ("results", "runs"):
        (out / folder).mkdir(exist_ok=True)
    read_results(out) if (out / "grid.json").exists() else None
    for leftover in [*out.glob(".grid.json.*"), *(out / "results").glob(".*.json.*")]:
        leftover.unlink()
    write_index(
        out, {"identity": grid.identity, "name": grid.name, "cells": list(ids), "ids": ids}
    )


def _prepare(grid: Grid, out: Path, planned: list[PlannedCell]) -> dict[str, Result]:
    """The results as they stand: what is settled is kept, everything else waits again."""
    results = {result["name"]: result for result in read_results(out)}
    for item in planned:
        if item.cell.name not in results or results[item.cell.name]["status"] not in _SETTLED:
            results[item.cell.name] = new_result(grid.name, item)
            write_result(out, results[item.cell.name])
    return results


@dataclasses.dataclass(frozen=True)
class _Sweep:
    """The cells of one sweep on their way from waiting to settled."""

    out: Path
    results: dict[str, Result]
    data_folder: Path | None
    threads: int
    report: Report

    def run(self, cells: tuple[Cell, ...], engine: Engine) -> None:
        """Start cells as soon as there is a slot and their teacher is done; record each as it ends."""
        waiting = [cell for cell in cells if self.status(cell.name) == "waiting"]
        kept = [cell.name for cell in cells if self.status(cell.name) in ("finished", "diverged")]
        if kept:
            self.tell("kept", "", f"{len(kept)} cells are done already")
        if not waiting:
            return
        running: dict[str, Cell] = {}
        with engine:
            while waiting or running:
                for cell in [cell for cell in waiting if self.status(cell.recipe.teacher) not in ("waiting", "running")]:
                    teacher = self.results.get(cell.recipe.teacher)
                    if teacher is not None and teacher["status"] != "finished":
                        reason = f"its teacher {teacher['name']} {teacher['status']}: {teacher['reason']}"
                        waiting.remove(cell)
                        self.record(cell.name, Outcome("failed", reason))
                    elif len(running) < engine.slots:
                        waiting.remove(cell)
                        running[cell.name] = cell
                        engine.start(self.task(cell))
                        self.tell("started", cell.name, engine.started)
                if not running:
                    continue
                message = engine.wait()
                if message.outcome is None:
                    self.tell("progress", message.task, message.text)
                else:
                    del running[message.task]
                    self.record(message.task, message.outcome)

    def status(self, name: str) -> str:
        return str(self.results[name]["status"]) if name in self.results else ""

    def task(self, cell: Cell) -> Task:
        recipe = cell.recipe
        if recipe.teacher in self.results:
            recipe = dataclasses.replace(recipe, teacher=str(self.out / "runs" / recipe.teacher))
        folder = None if self.data_folder is None else str(self.data_folder.resolve())
        return Task(cell.name, recipe, str(self.out / "runs" / cell.name), folder, self.threads)

    def record(self, name: str, outcome: Outcome) -> None:
        result = with_outcome(
            self.results[name], self.out / "runs" / name, outcome.status, outcome.reason, commit()
        )
        write_result(self.out, result)
        self.results[name] = result
        text = outcome.reason
        if outcome.status == "finished":
            text = f"test error {result['error']['top1']:.2f} %"
        self.tell(outcome.status, name, text)

    def tell(self, kind: Literal["kept", "started", "progress", "finished", "diverged", "failed"], cell: str, text: str) -> None:
        done = sum(result["status"] != "waiting" for result in self.results.values())
        self.report(Event(kind, cell, text, done, len(self.results)))
