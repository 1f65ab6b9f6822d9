"""Sweep a grid, see how a sweep stands, and write its report."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from understudy import experiments
from understudy.experiments import (
    Event,
    find_results,
    grid_names,
    load_grid,
    new_result,
    plan_cells,
    read_index,
    sweep_curves,
    sweep_status,
)
from understudy.planning.budget import Budget
from understudy.report import planned_overview, results_overview, write_report

from .common import app, show
from .training import DataFolder, Download, Trust


class EngineChoice(str, Enum):
    """Where cells are trained."""

    local = "local"
    ray = "ray"


@app.command()
def sweep(
    grid: Annotated[
        str, typer.Argument(help="A shipped grid (" + ", ".join(grid_names()) + ") or a TOML file.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The sweep's folder. A sweep of the same grid that is there already goes on.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Cells to train at a time on this machine.", min=1)] = 1,
    engine: Annotated[
        EngineChoice,
        typer.Option(help="local: processes here. ray: the cluster of RAY_ADDRESS, or a Ray started here."),
    ] = EngineChoice.local,
    gpus_per_cell: Annotated[
        float | None,
        typer.Option(help="For ray, may be a fraction; by default 1 where it has any.", show_default=False),
    ] = None,
    data: DataFolder = None,
    download: Download = False,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="A run, a file of weights or timm:NAME in the place of the grid's teacher.",
            show_default=False,
        ),
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Show what every cell will cost, and stop.")
    ] = False,
    trust: Trust = False,
    answers: Annotated[
        str,
        typer.Option(
            help="Bytes on disk for what a teacher answers, which students of one seed share; 0 keeps none.",
            metavar="BYTES",
        ),
    ] = "4GB",
) -> None:
    """Train every cell of GRID: the teacher once, then all students and baselines.

    Everything is planned before anything is trained. However it stops, the same command goes on: finished
    cells are not repeated, killed ones continue from their checkpoint, failed ones are tried again, and
    diverged ones, which would diverge again, are not.
    """
    loaded = load_grid(grid, data, teacher=teacher)
    if plan_only:
        planned = [new_result(loaded.name, item) for item in plan_cells(loaded, data)]
        show(planned_overview(loaded.name, planned))
        return
    if out is None:
        raise ValueError("give a folder for the results: --out DIR")
    console = Console(stderr=True)
    try:
        results = experiments.sweep(
            loaded,
            out,
            workers=workers,
            engine=engine.value,
            gpus_per_cell=gpus_per_cell,
            data_folder=data,
            download=download,
            trust=trust,
            answers_limit=0 if answers == "0" else int(Budget.of(bytes=answers).amount),
            report=lambda event: console.print(escape(line(event)), highlight=False, soft_wrap=True),
        )
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from the last checkpoints", highlight=False)
        raise typer.Exit(130) from None
    show(results_overview(loaded.name, results))
    if any(result.status.state in ("failed", "diverged") for result in results):
        raise typer.Exit(1)


def line(event: Event) -> str:
    """An event as one line."""
    return f"[{event.done}/{event.total}] " + ": ".join(filter(None, (event.cell, event.kind, event.text)))


@app.command()
def status(folder: Annotated[Path, typer.Argument(help="The folder of a sweep.", metavar="DIR")]) -> None:
    """Show how the sweep in DIR stands: counts, what is at work, time left, every failure by name."""
    found = sweep_status(folder)
    busy = [cell for cell in found.cells if cell.status.state == "running"]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(found.counts.items()))
    show(escape(f"{found.grid}: {sum(found.counts.values())} cells: {counts}"))
    for problem in found.passed_over:
        show(escape(f"passed over: {problem}"))
    for cell in busy:
        error = "" if cell.test_error is None else f", test error {cell.test_error:.2f} %"
        show(escape(f"running: {cell.name}, epoch {cell.epochs}/{cell.all_epochs}{error}"))
    for cell in found.failures:
        show(escape(f"{cell.status.state}: {cell.name}: {cell.status.reason}"))
    if not found.counts.keys() & {"waiting", "running"}:
        show("nothing is left to train")
        return
    known = f"about {duration(found.seconds_of_work)} of training" if found.seconds_of_work else ""
    unknown = f"{found.unknown} cells of unknown length" if found.unknown else ""
    text = f"left: {', and '.join(filter(None, (known, unknown)))}"
    if found.seconds_left is not None:
        text += f"; done in about {duration(found.seconds_left)} with {len(busy)} at work"
    elif not busy:
        text += "; nothing is at work now: the same sweep command goes on"
    show(escape(text))


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a sweep.", metavar="DIR")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; by default DIR/report.", show_default=False)
    ] = None,
) -> None:
    """Write tables, figures and one page that needs no network, from the results in DIR so far."""
    index, found = read_index(folder), find_results(folder)
    results = found.results
    for problem in found.passed_over:
        show(escape(f"passed over: {problem}"))
    page = write_report(results, out or folder / "report", title=index.name, curves=sweep_curves(results))
    show(escape(f"{len(results)} cells: {page}"))


def duration(seconds: float) -> str:
    """90 → `1.5 min`."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
