"""Sweep a grid, see how a sweep stands, and write its report."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from understudy import experiments
from understudy._util.quantities import format_bytes, format_count, format_share
from understudy._util.text_tables import table
from understudy.experiments import (
    Event,
    PlannedCell,
    curves,
    grid_names,
    load_grid,
    plan_cells,
    read_results,
    sweep_status,
)
from understudy.experiments.results import Result, read_index
from understudy.networks.nets import is_builtin
from understudy.report import write_report
from understudy.report.read.published import Published, published

from .common import app, show
from .training import DataFolder, Download


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
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Show what every cell will cost, and stop.")
    ] = False,
) -> None:
    """Train every cell of GRID: the teacher once, then all students and baselines.

    Everything is planned before anything is trained. However it stops, the same command goes on: finished
    cells are not repeated, killed ones continue from their checkpoint, failed ones are tried again, and
    diverged ones, which would diverge again, are not.
    """
    loaded = load_grid(grid, data)
    if plan_only:
        show(planned_table(loaded.name, plan_cells(loaded, data)))
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
            report=lambda event: console.print(escape(line(event)), highlight=False, soft_wrap=True),
        )
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from the last checkpoints", highlight=False)
        raise typer.Exit(130) from None
    show(results_table(loaded.name, results))
    if any(result["status"] in ("failed", "diverged") for result in results):
        raise typer.Exit(1)


def line(event: Event) -> str:
    """An event as one line."""
    return f"[{event.done}/{event.total}] " + ": ".join(filter(None, (event.cell, event.kind, event.text)))


def planned_table(grid: str, planned: Sequence[PlannedCell]) -> Any:
    """Parameters and mult-adds of every cell, beside the published ones where there are any."""
    rows = []
    for item in planned:
        costs = item.costs
        if costs is None:
            rows.append((item.cell.name, *[""] * 6, f"unreachable: {item.reason}"))
            continue
        paper = published_beside(item)
        rows.append(
            (
                item.cell.name,
                f"{costs['params']:,}",
                format_count(costs["mult_adds"]),
                format_count(costs["ideal_mult_adds"]),
                format_count(costs["matrix_mult_adds"]),
                format_count(paper.params) if paper else "",
                format_count(paper.mult_adds) if paper else "",
                item.cell.recipe.network if item.cell.role == "baseline" else "",
            )
        )
    return table(
        [
            "cell", ">parameters", ">mult-adds", ">ideal", ">dense matrices", ">published parameters",
            ">published mult-adds", "note",
        ],
        rows,
        title=f"{grid}: {len(planned)} cells",
        caption="mult-adds: as executed for one image, forming matrices included. ideal: that done ahead. "
        "dense matrices: had every structured matrix been stored dense, as the paper counts hashed and "
        "tensor_train. The paper also counts one for each output of a ReLU.",
    )  # fmt: skip


def published_beside(item: PlannedCell) -> Published | None:
    """The paper's point for the same network and transform with about as many parameters."""
    recipe, costs = item.cell.recipe, item.costs
    if item.cell.role == "baseline" or costs is None:
        return None
    points = published(recipe.network, recipe.data)
    return next(
        (point for point in points if point.compares_with(recipe.request.label, costs["params"])), None
    )


def results_table(grid: str, results: Sequence[Result]) -> Any:
    """What came out, the teacher first."""
    whole = next((result["planned"]["params"] for result in results if result["role"] == "teacher"), None)
    rows = []
    for result in results:
        costs, error, speed = result["costs"], result["error"], result["speed"]
        if result["status"] != "finished":
            rows.append((result["name"], *[""] * 7, f"{result['status']}: {result['reason']}"))
            continue
        rows.append(
            (
                result["name"],
                f"{costs['params']:,}",
                format_share(costs["params"], whole),
                format_count(costs["mult_adds"]),
                format_bytes(costs["bytes"]),
                f"{error['top1']:.2f} %",
                f"{speed['images_per_second']:,.0f}" if speed else "",
                f"{speed['latency_ms']:.2f}" if speed else "",
                result["network"] if result["role"] == "baseline" else "",
            )
        )
    first = next((result["speed"] for result in results if result["speed"]), None)
    measured = (
        f"images a second in batches of {first['batch_size']} and ms for one image; "
        f"{first['threads']} threads, best of several turns"
        if first
        else ""
    )
    return table(
        [
            "cell", ">parameters", ">of teacher", ">mult-adds", ">on disk", ">test error", ">images/s", ">ms",
            "note",
        ],
        rows,
        title=grid,
        caption=measured,
    )  # fmt: skip


@app.command()
def status(folder: Annotated[Path, typer.Argument(help="The folder of a sweep.", metavar="DIR")]) -> None:
    """Show how the sweep in DIR stands: counts, what is at work, time left, every failure by name."""
    found = sweep_status(folder)
    busy = [cell for cell in found.cells if cell.status == "running"]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(found.counts.items()))
    show(escape(f"{found.grid}: {len(found.cells)} cells: {counts}"))
    for cell in busy:
        error = "" if cell.test_error is None else f", test error {cell.test_error:.2f} %"
        show(escape(f"running: {cell.name}, epoch {cell.epochs}/{cell.all_epochs}{error}"))
    for cell in found.failures:
        show(escape(f"{cell.status}: {cell.name}: {cell.reason}"))
    left = [cell for cell in found.cells if cell.status in ("waiting", "running")]
    if not left:
        show("nothing is left to train")
        return
    text = f"left: about {duration(found.seconds_of_work)} of training"
    if found.unknown:
        text += f", and {found.unknown} cells of which nothing is known yet"
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
    index, results = read_index(folder), read_results(folder)
    page = write_report(results, out or folder / "report", title=index["name"], curves=sweep_curves(results))
    show(escape(f"{len(results)} cells: {page}"))


def sweep_curves(results: Sequence[Result]) -> dict[str, Any] | None:
    """The curves of the first network of a sweep that is built in."""
    for result in results:
        if is_builtin(result["network"]):
            return curves(result["network"], exclude=result["recipe"]["exclude"] or None)
    return None


def duration(seconds: float) -> str:
    """90 → `1.5 min`."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
