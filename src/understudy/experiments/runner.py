"""Sweep: train every cell of a grid, teachers first; whatever stops it, the same call goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from understudy.train.job import load_data

from .cell import Cell
from .engine import Engine
from .folder import opened
from .grid import Grid
from .local import LocalEngine
from .planning import PlannedCell, plan_cells
from .ray_engine import RayEngine
from .results import Result, new_result, read_results, with_outcome, write_result
from .speed import lacks_speed, measure_speeds
from .task import Outcome, Task, commit

EngineName = Literal["local", "ray"]
Kind = Literal[
    "kept", "started", "queued", "progress", "finished", "diverged", "failed", "measuring", "unmeasured"
]
_SETTLED = ("finished", "diverged")  # a failed cell is tried again; a diverged one would diverge again


@dataclasses.dataclass(frozen=True)
class Event:
    """What a sweep tells while it runs: that a cell moved, and how many are done."""

    kind: Kind
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
    download: bool = False,
    report: Report = lambda _: None,
) -> list[Result]:
    """Train all cells of a grid into the folder `out`, or go on with what is there; returns the results.

    Every cell is planned and all data are looked at, or fetched with `download`, before anything is made.
    Finished cells are never repeated and killed ones go on from their checkpoint. A cell that diverges or
    fails is recorded with its reason and stops no other; the next call tries failed ones again, but not
    diverged ones. The students of a teacher that did not finish fail with its reason. At the end the speed
    of all finished networks that are still there is measured.

    The threads of torch are shared out among the workers; on a cluster each cell has one. As sums on other
    numbers of threads may round otherwise, a sweep ends with the same bits as another only with as many.
    """
    planned = plan_cells(grid, data_folder)
    runner: Engine = (
        LocalEngine(workers, out / "workers.log") if engine == "local" else RayEngine(workers, gpus_per_cell)
    )
    _check_data(grid.cells, data_folder, download)
    with opened(out, grid):
        running = _Sweep(out.resolve(), _prepare(grid, out, planned), data_folder, report)
        running.run(grid.cells, runner)
        if lacks_speed(out):
            running.tell("measuring", "", "the speed of all finished networks, in turns")
            for name, problem in measure_speeds(out, data_folder).items():
                running.tell("unmeasured", name, problem)
        return read_results(out)


def _check_data(cells: Sequence[Cell], folder: Path | None, download: bool) -> None:
    """Load what the cells will load, each kind once: what is missing here is missing for all of them."""
    recipes = {(r.data, r.mean, r.std, r.train_images): r for r in (cell.recipe for cell in cells)}
    for recipe in recipes.values():
        load_data(recipe, folder, download=download)


def _prepare(grid: Grid, out: Path, planned: Sequence[PlannedCell]) -> dict[str, Result]:
    """The results as they stand: what is settled is kept, everything else waits again."""
    results = {result["name"]: result for result in read_results(out)}
    for item in planned:
        name = item.cell.name
        if name not in results or results[name]["status"] not in _SETTLED:
            results[name] = new_result(grid.name, item)
            write_result(out, results[name])
    return results


@dataclasses.dataclass(frozen=True)
class _Sweep:
    """The cells of one sweep on their way from waiting to settled."""

    out: Path
    results: dict[str, Result]
    data_folder: Path | None
    report: Report

    def run(self, cells: Sequence[Cell], engine: Engine) -> None:
        """Start cells as soon as there is a slot and their teacher is done; record each as it ends."""
        waiting = [cell for cell in cells if self.status(cell.name) == "waiting"]
        kept = sum(self.status(cell.name) in _SETTLED for cell in cells)
        if kept:
            self.tell("kept", "", f"{kept} cells are done already")
        if not waiting:
            return
        running: set[str] = set()
        with engine:
            while waiting or running:
                for cell in [cell for cell in waiting if self.status(cell.recipe.teacher) != "waiting"]:
                    if self.status(cell.recipe.teacher) not in ("", "finished"):
                        waiting.remove(cell)
                        self.record(cell.name, Outcome("failed", self.blame(cell.recipe.teacher)))
                    elif len(running) < engine.slots:
                        waiting.remove(cell)
                        running.add(cell.name)
                        engine.start(self.task(cell, engine.threads))
                        self.tell(engine.started, cell.name, "")
                if not running:
                    continue
                message = engine.wait()
                if message.outcome is None:
                    self.tell("progress", message.task, message.text)
                else:
                    running.remove(message.task)
                    self.record(message.task, message.outcome)

    def status(self, name: str) -> str:
        """Of a cell; empty for what is none, such as no teacher or an existing one."""
        return str(self.results[name]["status"]) if name in self.results else ""

    def blame(self, teacher: str) -> str:
        return f"its teacher {teacher} has {self.status(teacher)}: {self.results[teacher]['reason']}"

    def task(self, cell: Cell, threads: int) -> Task:
        """With paths that hold in any working directory."""
        teacher = cell.recipe.teacher
        if teacher in self.results:
            teacher = str(self.out / "runs" / teacher)
        elif teacher and Path(teacher).exists():  # else the name of a published network, or none
            teacher = str(Path(teacher).resolve())
        recipe = dataclasses.replace(cell.recipe, teacher=teacher)
        folder = None if self.data_folder is None else str(self.data_folder.resolve())
        return Task(cell.name, recipe, str(self.out / "runs" / cell.name), folder, threads)

    def record(self, name: str, outcome: Outcome) -> None:
        run = self.out / "runs" / name
        self.results[name] = with_outcome(self.results[name], run, outcome.status, outcome.reason, commit())
        write_result(self.out, self.results[name])
        error = self.results[name]["error"]
        text = outcome.reason if error is None else f"test error {error['top1']:.2f} %"
        self.tell(outcome.status, name, text)

    def tell(self, kind: Kind, cell: str, text: str) -> None:
        done = sum(result["status"] != "waiting" for result in self.results.values())
        self.report(Event(kind, cell, text, done, len(self.results)))
