"""Time and size of a report of 200 cells with 200 epochs each, all made up, with all its figures.

python benchmarks/report.py [--write]
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import write
from understudy.experiments import curves
from understudy.report import write_report
from understudy.transforms import list_transforms

BUDGETS = (2_000_000, 1_600_000, 1_200_000, 900_000, 600_000)
SEEDS = range(3)
EPOCHS = 200


def cell(name: str, params: int, seed: int, **facts: Any) -> dict[str, Any]:
    """A finished result of format 1; its error follows from its size."""
    error = 3 + 4 * math.exp(-params / 1e6) + seed / 10 + len(name) / 50
    curve = [
        {"epoch": epoch, "train_loss": 2 * 0.98**epoch, "train_error": 60 * 0.98**epoch,
         "test_error": error + 60 * 0.97**epoch, "seconds": 10.0}
        for epoch in range(EPOCHS)
    ]  # fmt: skip
    costs = {
        "params": params,
        "mult_adds": params * 150,
        "ideal_mult_adds": params * 150,
        "bytes": params * 4,
    }
    speed = {"images_per_second": 1e9 / params, "latency_ms": params / 1e5, "batch_size": 64, "threads": 2}
    return {
        "format": 1, "understudy": "0.1.0", "grid": "made up", "name": name, "id": name, "role": "student",
        "status": "finished", "reason": "", "recipe": {}, "network": "wrn_28_10", "data": "cifar10",
        "transform": "", "budget": f"{params} params", "attention": 1000.0, "decay": "crs", "seed": seed,
        "teacher": "", "planned": None,
        "costs": costs, "speed": speed,
        "error": {"top1": error, "top5": error / 10, "test_images": 10_000},
        "curve": curve, "commit": None, "machine": None, "seconds": 2000.0, **facts,
    }  # fmt: skip


def cells() -> list[dict[str, Any]]:
    made = [cell("teacher", 36_479_194, 0, role="teacher", attention=0.0, budget="")]
    for transform in list_transforms():
        for params in BUDGETS:
            for seed in SEEDS:
                for attention in (1000.0, 0.0):
                    name = f"{transform}-{params}-{attention:g}-{seed}"
                    made.append(cell(name, params, seed, transform=transform, attention=attention))
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
