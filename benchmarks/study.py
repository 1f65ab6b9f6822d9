"""What has finished of the sweep `study_cifar10`, kept in results/study, and the page and the report of it.

    python benchmarks/study.py [--sweep DIR] [--time]

Takes over the runs of a sweep's folder that are settled, and writes docs/study.md and docs/reports/study.html
of all that is kept. `--time` measures all networks first, in turns, in PyTorch and as ONNX files
(results/study_latency.json): made anew, since weights decide nothing about time. A copy of results/study is a
folder that `understudy sweep study_cifar10 --out` goes on with.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import understudy as us
from measure import RESULTS, write
from study_page import filled
from understudy._util.timing import time_in_turns
from understudy.deploy.runtimes import opened
from understudy.experiments import load_grid, plan_cells, read_index, read_results
from understudy.experiments.folder import INDEX, find_results, write_result
from understudy.experiments.speed import passes_of, speed_of
from understudy.report.figures.style import report_styles
from understudy.report.page.document import page
from understudy.report.read.groups import ablations, group_results
from understudy.results import SETTLED, Result

KEPT = RESULTS / "study"
GRID = "study_cifar10"
SHIPPED = RESULTS / "study_latency.json"
DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "study.md"
REPORT = DOCS / "reports" / "study.html"
ROUNDS = 5000  # calls of a fraction of a millisecond
TITLE = "WRN-16-2 on CIFAR-10: which structure is best?"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sweep", type=Path, help="the folder of a sweep, running or not")
    parser.add_argument("--time", action="store_true", help="measure the speed of all networks")
    given = parser.parse_args()
    if given.sweep is not None:
        take(given.sweep, KEPT)
    if given.time:
        write(SHIPPED.stem, {"latency_ms": time_all()})
    results = kept()
    page = filled(PAGE.read_text(encoding="utf-8"), results, shipped(), cells())
    PAGE.write_text(page, encoding="utf-8")
    REPORT.write_text(report(results), encoding="utf-8")


def time_all() -> dict[str, float]:
    """Write the speed in PyTorch into every kept result; the ms of one image in ONNX Runtime by name."""
    results = {result.name: result for result in kept() if result.finished}
    grid = load_grid(GRID)
    wanted = dataclasses.replace(grid, cells=tuple(cell for cell in grid.cells if cell.name in results))
    eager: dict[tuple[str, int], Callable[[], object]] = {}
    onnx: dict[str, Callable[[], object]] = {}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for item in plan_cells(wanted):
            name, recipe = item.cell.name, item.cell.recipe
            network = us.create_model(recipe.network)
            if item.plan is not None:
                network = us.substitute(network, item.plan, init="fresh")
            image = torch.zeros(1, 3, 32, 32)
            file = us.export(network, Path(folder) / f"{name}.onnx", image).path
            onnx[name] = partial(opened(file, "onnx"), image)
            passes = passes_of(network, recipe, tuple(image.shape[1:]), torch.device("cpu"))
            eager.update({(name, batch): call for batch, call in passes.items()})
        taken = time_in_turns(eager, rounds=14, seconds=240.0)
        for name, result in results.items():
            write_result(KEPT, dataclasses.replace(result, speed=speed_of(name, taken)))
        found = time_in_turns(onnx, rounds=ROUNDS, seconds=90.0)
        return {name: round(1000 * timing.best, 3) for name, timing in found.items()}


def shipped() -> dict[str, float]:
    """The committed ones."""
    found: dict[str, float] = json.loads(SHIPPED.read_text())["latency_ms"] if SHIPPED.is_file() else {}
    return found


def take(sweep: Path, into: Path) -> None:
    """Copy the results that are settled; of a teacher's file its name alone is kept."""
    (into / "results").mkdir(parents=True, exist_ok=True)
    index = read_index(sweep)
    known = {entry.name for entry in read_index(into).cells} if (into / INDEX).is_file() else set()
    if not {entry.name for entry in index.cells} <= known:  # that of some cells alone stays as it is
        shutil.copyfile(sweep / INDEX, into / INDEX)
    for result in find_results(sweep).results:
        if result.status.state in SETTLED:
            teacher = Path(str(result.indifferent["teacher"])).name
            write_result(
                into, dataclasses.replace(result, indifferent={**result.indifferent, "teacher": teacher})
            )


def kept() -> list[Result]:
    """The committed results, in the grid's order."""
    return read_results(KEPT)


def cells() -> int:
    """How many runs the grid has in all."""
    return len(read_index(KEPT).cells)


def report(results: list[Result]) -> str:
    """The page of the report, by itself."""
    groups, rows = group_results(results), ablations(results)
    source = f"The runs are kept in benchmarks/results/{KEPT.name}."
    return page(TITLE, results, groups, rows, None, report_styles(results, None), (), (source,))


if __name__ == "__main__":
    main()
