"""Time and size of a report of 200 cells with 200 epochs each, all made up, with all its figures.

python benchmarks/report.py [--write]
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import write
from understudy.experiments import curves
from understudy.report import write_report
from understudy.results import Costs, CurvePoint, ErrorRates, Result, Size, Speed, Status
from understudy.transforms import list_transforms

BUDGETS = (2_000_000, 1_600_000, 1_200_000, 900_000, 600_000)
SEEDS = range(3)
EPOCHS = 200


def cell(name: str, params: int, seed: int, **facts: Any) -> Result:
    """A finished result; its error follows from its size."""
    error = 3 + 4 * math.exp(-params / 1e6) + seed / 10 + len(name) / 50
    curve = tuple(
        CurvePoint(
            epoch=epoch,
            step=epoch,
            learning_rate=0.1,
            train_loss=2 * 0.98**epoch,
            train_error=60 * 0.98**epoch,
            test_loss=2 * 0.98**epoch,
            test_error=error + 60 * 0.97**epoch,
            test_top5_error=error / 10,
            seconds=10.0,
        )
        for epoch in range(EPOCHS)
    )
    made = Result(
        understudy="made up",
        commit=None,
        grid="made up",
        name=name,
        id=name,
        role="student",
        status=Status("finished"),
        network="wrn_28_10",
        data="cifar10",
        structure="",
        transforms=(),
        budget=Size("params", params, f"{params}"),
        attention=1000.0,
        decay="crs",
        crs="layer",
        seed=seed,
        epochs=EPOCHS,
        teacher="",
        deciding={},
        indifferent={},
        planned=None,
        costs=Costs(params, params * 150, params * 150, params * 4),
        errors=ErrorRates(error, error / 10, 10_000),
        speed=Speed(1e9 / params, params / 1e5, 64, 2),
        curve=curve,
    )
    made = dataclasses.replace(made, **facts)
    deciding = {"structure": made.structure, "attention": made.attention, "seed": seed}
    return dataclasses.replace(made, deciding=deciding)


def cells() -> list[Result]:
    made = [cell("teacher", 36_479_194, 0, role="teacher", attention=0.0, budget=None)]
    for transform in list_transforms():
        for params in BUDGETS:
            for seed in SEEDS:
                for attention in (1000.0, 0.0):
                    name = f"{transform}-{params}-{attention:g}-{seed}"
                    made.append(cell(name, params, seed, structure=transform, attention=attention))
    return made[:200]


def main() -> None:
    parser = argparse.ArgumentParser(description="A report of 200 cells.")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/report.json")
    arguments = parser.parse_args()
    results = cells()
    extra = curves("wrn_28_10", exclude=["*.shortcut"])
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        page = write_report(results, Path(folder), title="made up", curves=extra)
        seconds = time.perf_counter() - started
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        measured = {
            "cells": len(results),
            "seconds": round(seconds, 2),
            "page_bytes": page.stat().st_size,
            "files": len(files),
        }
    print(measured)
    if arguments.write:
        print(write("report", measured))


if __name__ == "__main__":
    main()
