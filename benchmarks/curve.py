"""How long a whole trade-off curve takes: one calibration of ResNet-56, ten ratios, every transform.

    python benchmarks/curve.py --weights DIR --cifar DIR --write

512 images are looked at, 1,000 others tested on; each layer is fitted by itself (`--quick` of the command).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from torch.utils.data import DataLoader, TensorDataset

from measure import write
from subjects import Folders, cifar, cifar_images
from understudy.experiments import Tradeoff, every_transform
from understudy.planning.budget import Budget

RATIOS = (0.95, 0.9, 0.83, 0.7, 0.59, 0.5, 0.4, 0.3, 0.2, 0.15)
LOOKED_AT, TESTED = 512, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds of a whole trade-off curve.")
    for name in ("weights", "cifar"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/curve.json")
    given = parser.parse_args()
    subject = cifar("resnet56", Folders(given.weights, given.cifar, Path(), Path()))
    tested = TensorDataset(*cifar_images(given.cifar / "test_batch.bin", "resnet56", TESTED))
    refused: list[dict[str, str]] = []
    started = time.monotonic()
    curve = Tradeoff(
        subject.model,
        data=subject.batches,
        samples=LOOKED_AT,
        test=DataLoader(tested, 250),
        quick=True,
    )
    cells = []
    for made in curve.students(
        every_transform(),
        [Budget("ratio", share) for share in RATIOS],
        lambda transform, budget, error: refused.append(
            {"cell": f"{transform}, {budget}", "why": str(error)}
        ),
    ):
        record = made.record
        cells.append(
            {
                "name": record.name,
                "params": record.costs.params,
                "mult_adds": record.costs.mult_adds,
                "accuracy": record.quality.accuracy,
                "seconds": record.seconds,
            }
        )
        print(cells[-1], flush=True)
    seconds = round(time.monotonic() - started, 1)
    print(f"{len(cells)} students, {len(refused)} out of reach, {seconds} s")
    if given.write:
        original = curve.yardstick.quality.accuracy
        write("curve", {"seconds": seconds, "accuracy": original, "cells": cells, "refused": refused})


if __name__ == "__main__":
    main()
