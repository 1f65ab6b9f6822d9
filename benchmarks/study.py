"""What has finished of the sweep `study_cifar10`, kept in results/study, and the page and the report of it.

    python benchmarks/study.py --sweep DIR [--data DIR]
    python benchmarks/study.py

The first takes over the runs of a sweep's folder that are settled; with `--data` the speed of all is measured
first, in turns, in PyTorch and as ONNX files (results/study_latency.json). The second writes docs/study.md
and docs/reports/study.html of what is kept. A copy of results/study is a folder that
`understudy sweep study_cifar10 --out` goes on with.
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
from measure import RESULTS, best_of, write
from study_page import filled
from understudy import data
from understudy.deploy.runtimes import opened
from understudy.experiments import read_index, read_results
from understudy.experiments.folder import find_results, run_folder, write_result
from understudy.experiments.speed import measure_speeds
from understudy.report.figures.style import report_styles
from understudy.report.page.document import page
from understudy.report.read.groups import ablations, group_results
from understudy.results import SETTLED, Result
from understudy.train import Run
from understudy.train.teacher import load_trained

KEPT = RESULTS / "study"
SHIPPED = RESULTS / "study_latency.json"
DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "study.md"
REPORT = DOCS / "reports" / "study.html"
ROUNDS = 60
TITLE = "WRN-16-2 on CIFAR-10: which structure is best?"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sweep", type=Path, help="the folder of a sweep, running or not")
    parser.add_argument("--data", type=Path, help="measure the speed of all networks, with this data set")
    given = parser.parse_args()
    if given.sweep is not None:
        if given.data is not None:
            measure_speeds(given.sweep, given.data, rounds=14, seconds=240)
            write(SHIPPED.stem, {"latency_ms": shipped_latencies(given.sweep, given.data)})
        take(given.sweep, KEPT)
    results = kept()
    page = filled(PAGE.read_text(encoding="utf-8"), results, shipped(), cells())
    PAGE.write_text(page, encoding="utf-8")
    REPORT.write_text(report(results), encoding="utf-8")


def shipped_latencies(sweep: Path, data_folder: Path) -> dict[str, float]:
    """The ms of one image in ONNX Runtime as it is by default, of every network that has finished."""
    calls: dict[str, Callable[[], object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for result in read_results(sweep):
            if not result.finished:
                continue
            run = Run.read(run_folder(sweep, result.name))
            facts = data.facts(result.data, data_folder)
            image = torch.zeros(1, *facts.image_shape)
            network = load_trained(run.folder, run.recipe, facts.classes)
            file = us.export(network, Path(folder) / f"{result.name}.onnx", image).path
            calls[result.name] = partial(opened(file, "onnx"), image)
        return {name: round(ms, 3) for name, ms in best_of(calls, ROUNDS).items()}


def shipped() -> dict[str, float]:
    """The committed ones."""
    found: dict[str, float] = json.loads(SHIPPED.read_text())["latency_ms"] if SHIPPED.is_file() else {}
    return found


def take(sweep: Path, into: Path) -> None:
    """Copy the results that are settled; of a teacher's file its name alone is kept."""
    (into / "results").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sweep / "grid.json", into / "grid.json")
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
