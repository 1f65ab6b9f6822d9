"""Sweep: train every cell of a grid, teachers first; whatever stops it, the same call goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from understudy.results import SETTLED, Result, State, Status
from understudy.train import RunError
from understudy.train.job import load_data

from .cell import Cell
from .cell_costs import PlannedCell, plan_cells
from .collect import new_result, with_status
from .engine import Engine
from .folder import find_results, opened, read_results, run_folder, write_result
from .grid import Grid
from .local import LocalEngine
from .ray_engine import RayEngine
from .sharing import DEFAULT_LIMIT, answers_folder, sharing
from .speed import lacks_speed, measure_speeds
from .task import Task, one_line

EngineName = Literal["local", "ray"]
EventKind = Literal[
    "kept", "started", "queued", "progress", "finished", "diverged", "failed", "measuring", "unmeasured"
]


@dataclasses.dataclass(frozen=True)
class Event:
    """What a sweep tells while it runs: that a cell moved, and how many are done.

    >>> from understudy.experiments import Event
    >>> def tell(event):  # for sweep(grid, out, report=tell)
    ...     print(f"{event.done}/{event.total} {event.cell} {event.kind}: {event.text}")
    >>> tell(Event("finished", "teacher-seed-0", "test error 3.20 %", done=1, total=8))
    1/8 teacher-seed-0 finished: test error 3.20 %
    """

    kind: EventKind
    cell: str
    text: str
    done: int
    total: int


Report = Callable[[Event], None]
_ENDS: dict[State, EventKind] = {"finished": "finished", "diverged": "diverged", "failed": "failed"}


def sweep(
    grid: Grid,
    out: Path,
    *,
    workers: int = 1,
    engine: Engine | EngineName = "local",
    gpus_per_cell: float | None = None,
    data_folder: Path | None = None,
    download: bool = False,
    trust: bool = False,
    answers_limit: int = DEFAULT_LIMIT,
    report: Report = lambda _: None,
) -> list[Result]:
    """Train all cells of a grid into the folder `out`, or go on with what is there; returns the results.

    Every cell is planned and all data are looked at, or fetched with `download`, before anything is made.
    Finished cells are never repeated and killed ones go on from their checkpoint. A cell that diverges or
    fails is recorded with its reason and stops no other; the next call tries failed ones again, but not
    diverged ones. The students of a teacher that did not finish fail with its reason. At the end the speed
    of all finished networks that are still there is measured.

    With `trust`, a function that the folder of an existing teacher names may be called; those that the grid
    itself names are.

    Students that ask one teacher the same, for one seed and one augmentation, share its answers, rounded to
    float16: it runs once for all of them. They lie in the sweep's folder while it runs, in at most
    `answers_limit` bytes and as long as the disk has room; 0 keeps and rounds none.

    `engine` is "local" (`workers` processes on this machine), "ray", or any object with the members of
    `Engine`, which has places of its own.

    The threads of torch are shared out among the workers; on a cluster each cell has one. As sums on other
    numbers of threads may round otherwise, a sweep ends with the same bits as another only with as many.

    >>> from pathlib import Path
    >>> from understudy.experiments import make_grid, sweep
    >>> table = {"recipe": "demo", "unreachable": "skip", "baselines": {"narrow": "10"}}
    >>> grid = make_grid("small", {**table, "teacher": {"existing": "timm:resnet18"}})
    >>> [(result.name, result.status.state) for result in sweep(grid, Path("sweep"))]  # too small to be made
    [('narrow-10-seed-0', 'unreachable')]
    """
    planned = plan_cells(grid, data_folder)
    runner = _engine(engine, workers, gpus_per_cell, out / "workers.log")
    _check_data(grid.cells, data_folder, download)
    named = {name for cell in grid.cells for name in (cell.recipe.network, cell.recipe.data)}
    if answers_limit < 0:
        raise ValueError(f"answers_limit is {answers_limit} bytes, below 0")
    with opened(out, grid):
        results = _prepare(grid, out, planned)
        with answers_folder(out.resolve()) as answers:
            running = _Sweep(
                out.resolve(),
                {item.cell.name: item for item in planned},
                results,
                data_folder,
                trust,
                report,
                sharing(grid.cells) if answers_limit else frozenset(),
                answers,
                answers_limit,
            )
            running.run(grid.cells, runner)
        if lacks_speed(out):
            running.tell("measuring", "", "the speed of all finished networks, in turns")
            for name, problem in measure_speeds(out, data_folder, trust=trust, named=named).items():
                running.tell("unmeasured", name, problem)
        return read_results(out)


def _engine(engine: Engine | str, workers: int, gpus_per_cell: float | None, log: Path) -> Engine:
    if gpus_per_cell is not None and engine != "ray":
        raise ValueError("GPUs for each cell are for the engine ray alone")
    if engine == "local":
        return LocalEngine(workers, log)
    if engine == "ray":
        return RayEngine(workers, gpus_per_cell)
    if isinstance(engine, str):
        raise ValueError(f"no engine {engine!r}: give 'local', 'ray' or an object such as LocalEngine")
    return engine


def _check_data(cells: Sequence[Cell], folder: Path | None, download: bool) -> None:
    """Load what the cells will load, each kind once: what is missing here is missing for all of them."""
    recipes = {(r.data, r.mean, r.std, r.train_images): r for r in (cell.recipe for cell in cells)}
    for recipe in recipes.values():
        load_data(recipe, folder, download=download)


def _prepare(grid: Grid, out: Path, planned: Sequence[PlannedCell]) -> dict[str, Result]:
    """The results as they stand: what is settled is kept, everything else waits again."""
    results = {result.name: result for result in find_results(out).results}  # a damaged one is made again
    for item in planned:
        name = item.cell.name
        if name not in results or results[name].status.state not in SETTLED:
            results[name] = new_result(grid.name, item)
            write_result(out, results[name])
    return results


@dataclasses.dataclass(frozen=True)
class _Sweep:
    """The cells of one sweep on their way from waiting to settled."""

    out: Path
    planned: dict[str, PlannedCell]
    results: dict[str, Result]
    data_folder: Path | None
    trust: bool
    report: Report
    sharing: frozenset[str]
    answers: Path
    answers_limit: int

    def run(self, cells: Sequence[Cell], engine: Engine) -> None:
        """Start cells as soon as there is a slot and their teacher is done; record each as it ends."""
        waiting = [cell for cell in cells if self.state(cell.name) == "waiting"]
        kept = sum(self.state(cell.name) in SETTLED for cell in cells)
        if kept:
            self.tell("kept", "", f"{kept} cells are done already")
        if not waiting:
            return
        running: set[str] = set()
        with engine:
            while waiting or running:
                for cell in [cell for cell in waiting if self.state(cell.recipe.teacher) != "waiting"]:
                    if self.state(cell.recipe.teacher) not in (None, "finished"):
                        waiting.remove(cell)
                        self.record(cell.name, Status("failed", self.blame(cell.recipe.teacher)))
                    elif len(running) < engine.slots:
                        waiting.remove(cell)
                        running.add(cell.name)
                        engine.start(self.task(cell, engine.threads))
                        self.tell(engine.started, cell.name, "")
                if not running:
                    continue
                message = engine.wait()
                if message.status is None:
                    self.tell("progress", message.task, message.text)
                else:
                    running.remove(message.task)
                    self.record(message.task, message.status)

    def state(self, name: str) -> State | None:
        """Of a cell; None for what is none, such as no teacher or an existing one."""
        return self.results[name].status.state if name in self.results else None

    def blame(self, teacher: str) -> str:
        return f"its teacher {teacher} has {self.state(teacher)}: {self.results[teacher].status.reason}"

    def task(self, cell: Cell, threads: int) -> Task:
        """With paths that hold in any working directory, and the plan made at the start."""
        teacher = cell.recipe.teacher
        if teacher in self.results:
            teacher = str(run_folder(self.out, teacher))
        elif teacher and Path(teacher).exists():  # else the name of a published network, or none
            teacher = str(Path(teacher).resolve())
        recipe = dataclasses.replace(cell.recipe, teacher=teacher)
        folder = None if self.data_folder is None else str(self.data_folder.resolve())
        out = str(run_folder(self.out, cell.name))
        task = Task(cell.name, recipe, out, folder, threads, self.planned[cell.name].plan, self.trust)
        if cell.name not in self.sharing:
            return task
        return dataclasses.replace(task, answers=str(self.answers), answers_limit=self.answers_limit)

    def record(self, name: str, status: Status) -> None:
        folder = run_folder(self.out, name)
        try:
            result = with_status(self.results[name], folder, status)
        except RunError as error:  # what the run left was changed meanwhile
            status = Status("failed", one_line(str(error)))
            result = with_status(self.results[name], folder, status)
        self.results[name] = result
        write_result(self.out, result)
        text = status.reason if result.top1 is None else f"test error {result.top1:.2f} %"
        self.tell(_ENDS[status.state], name, text)

    def tell(self, kind: EventKind, cell: str, text: str) -> None:
        done = sum(result.status.state != "waiting" for result in self.results.values())
        self.report(Event(kind, cell, text, done, len(self.results)))
