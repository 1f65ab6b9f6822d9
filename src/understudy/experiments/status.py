"""How a sweep stands, from its folder alone: counts, what is at work, what is left, every failure."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from understudy.results import FAILURES, Result, Status
from understudy.train import Recipe, Run

from .folder import find_results, read_index, run_folder


@dataclasses.dataclass(frozen=True)
class CellStatus:
    """How one cell stands; `seconds_left` is of training, None where nothing tells."""

    name: str
    status: Status
    epochs: int  # done
    all_epochs: int
    test_error: float | None
    seconds_left: float | None


@dataclasses.dataclass(frozen=True)
class SweepStatus:
    """How all cells stand; those without a result that can be read wait, for they are made again.

    >>> from pathlib import Path
    >>> from understudy.experiments import make_grid, sweep, sweep_status
    >>> table = {"recipe": "demo", "unreachable": "skip", "baselines": {"narrow": "10"}}
    >>> grid = make_grid("small", {**table, "teacher": {"existing": "timm:resnet18"}})
    >>> _ = sweep(grid, Path("sweep"))
    >>> [cell.status.reason for cell in sweep_status(Path("sweep")).failures]
    ['10 parameters are below what a narrower wrn_10_2 reaches: ...']
    """

    grid: str
    cells: tuple[CellStatus, ...]
    passed_over: tuple[str, ...] = ()  # why a result cannot be read
    without_result: int = 0  # cells of the grid that are not among `cells`

    @property
    def counts(self) -> dict[str, int]:
        """Cells by state."""
        states = collections.Counter(cell.status.state for cell in self.cells)
        return dict(states + collections.Counter(waiting=self.without_result))

    @property
    def failures(self) -> list[CellStatus]:
        """All that did not go well, whatever the reason."""
        return [cell for cell in self.cells if cell.status.state in FAILURES]

    @property
    def unknown(self) -> int:
        """Cells left of which nothing tells how long they take."""
        return sum(cell.seconds_left is None for cell in self.cells) + self.without_result

    @property
    def seconds_of_work(self) -> float:
        """Training left, as far as it is known, one cell after another."""
        return sum(cell.seconds_left or 0.0 for cell in self.cells)

    @property
    def seconds_left(self) -> float | None:
        """Until the end with as many cells at work as now; None if none is, or something is not known."""
        at_work = self.counts.get("running", 0)
        return None if not at_work or self.unknown else self.seconds_of_work / at_work


def sweep_status(out: Path) -> SweepStatus:
    """Read how a sweep stands; one that is at work is not disturbed.

    >>> from pathlib import Path
    >>> from understudy.experiments import make_grid, sweep, sweep_status
    >>> table = {"recipe": "demo", "unreachable": "skip", "baselines": {"narrow": "10"}}
    >>> grid = make_grid("small", {**table, "teacher": {"existing": "timm:resnet18"}})
    >>> _ = sweep(grid, Path("sweep"))
    >>> sweep_status(Path("sweep")).counts
    {'unreachable': 1}
    """
    index, found = read_index(out), find_results(out)
    results = found.results
    runs = {result.name: Run(run_folder(out, result.name), Recipe()) for result in results}
    epochs = {name: run.metrics() for name, run in runs.items()}
    seconds = {name: [epoch.seconds for epoch in records] for name, records in epochs.items()}
    paces = {result.name: _pace(result, results, seconds) for result in results}
    cells = []
    for result in results:
        name, status = result.name, result.status
        if status.state == "waiting" and runs[name].is_in_use():
            status = Status("running")
        done = len(epochs[name])
        left: float | None = 0.0
        if status.state in ("waiting", "running"):
            pace = paces[name]
            left = None if pace is None else pace * (result.epochs - done)
        errors = epochs[name][-1].errors if epochs[name] else None
        error = None if errors is None else errors.test_error
        cells.append(CellStatus(name, status, done, result.epochs, error, left))
    without = len({entry.name for entry in index.cells} - {cell.name for cell in cells})
    return SweepStatus(index.name, tuple(cells), tuple(map(str, found.passed_over)), without)


def _pace(result: Result, results: Iterable[Result], seconds: dict[str, list[float]]) -> float | None:
    """Seconds an epoch: of the cell itself, or of cells with the same network and transform."""
    if seconds[result.name]:
        return fmean(seconds[result.name])
    alike = [
        second
        for other in results
        if (other.network, other.structure, other.attention)
        == (result.network, result.structure, result.attention)
        for second in seconds[other.name]
    ]
    return fmean(alike) if alike else None
