"""Trained networks compressed without any training: accuracy of what `us.compress` makes, beside a plain fit.

    python benchmarks/compress.py WEIGHTS DATA --write

WEIGHTS holds resnet20_cifar10.safetensors, resnet56_cifar10.safetensors and wrn_16_2_cifar10.safetensors,
DATA the binary files of CIFAR-10. 1,024 training images are looked at without their labels, an eighth of them
only to decide; accuracy is on all images of the test file. Every cell is written as it ends: the same command
goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

import understudy as us
from measure import RESULTS, write
from understudy._util.text_tables import table

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
WIDE = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
BEST = ("low_rank", "tensor_train")
CELLS = [
    *[("resnet20", family, ratio) for family in BEST for ratio in (0.83, 0.7, 0.59, 0.5)],
    *[("resnet56", family, ratio) for family in BEST for ratio in (0.7, 0.5)],
    *[("wrn_16_2", family, ratio) for family in BEST for ratio in (0.5, 0.3)],
    *[("resnet20", family, 0.5) for family in ("tucker", "hashed", "shuffle", "acdc")],
]
SAMPLES = 1024


def read_images(file: Path, network: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    records = np.fromfile(file, dtype=np.uint8).reshape(-1, 3073)[:count]
    mean, std = (torch.tensor(values)[:, None, None] for values in (WIDE if "wrn" in network else IMAGENET))
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()).float() / 255
    return (images - mean) / std, torch.from_numpy(records[:, 0].copy()).long()


class Original:
    """A trained network, its data, and what it sees: looked at once for all cells."""

    def __init__(self, network: str, weights: Path, data: Path) -> None:
        self.model = us.create_model(network).eval()
        us.load_weights(self.model, weights / f"{network}_cifar10.safetensors")
        self.seen = read_images(data / "data_batch_1.bin", network, SAMPLES)[0].split(128)
        self.images, self.labels = read_images(data / "test_batch.bin", network)
        self.accuracy = self.measured(self.model)
        self.calibration: us.Calibration | None = None

    @torch.no_grad()
    def measured(self, model: nn.Module) -> float:
        answers = torch.cat([model.eval()(part).argmax(1) for part in self.images.split(500)])
        return round(100 * float((answers == self.labels).float().mean()), 2)

    def cell(self, family: str, ratio: float) -> dict[str, Any]:
        started = time.monotonic()
        done = us.compression(
            self.model, family, ratio=ratio, data=self.seen, samples=SAMPLES, calibration=self.calibration
        )
        seconds = time.monotonic() - started
        self.calibration = done.calibration
        plain = us.substitute(self.model, us.plan(self.model, family, ratio=ratio, spatial="unfolded"))
        return {
            "transform": family,
            "ratio": ratio,
            "params": done.plan.params,
            "dense_params": done.plan.dense_params,
            "dense_accuracy": self.accuracy,
            "plain_accuracy": self.measured(us.merge(plain)),
            "accuracy": self.measured(us.merge(done.student)),
            "images": len(self.labels),
            "samples": SAMPLES,
            "steps": [dataclasses.asdict(step) for step in done.steps],
            "seconds": round(seconds, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy of compressed networks before any training.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/compress.json")
    arguments = parser.parse_args()
    file = RESULTS / "compress.json"
    cells: list[dict[str, Any]] = json.loads(file.read_text())["cells"] if file.exists() else []
    held = {(cell["network"], cell["transform"], cell["ratio"]) for cell in cells}
    original = functools.cache(lambda network: Original(network, arguments.weights, arguments.data))
    for network, family, ratio in CELLS:
        if (network, family, ratio) not in held:
            cells.append({"network": network, **original(network).cell(family, ratio)})
            if arguments.write:
                write("compress", {"cells": cells})
            print(cells[-1], flush=True)
    rows = [
        (
            cell["network"],
            cell["transform"],
            f"{100 * cell['params'] / cell['dense_params']:.1f} %",
            f"{cell['dense_accuracy']:.2f}",
            f"{cell['plain_accuracy']:.2f}",
            f"{cell['accuracy']:.2f}",
            f"{cell['accuracy'] - cell['dense_accuracy']:+.2f}",
        )
        for cell in cells
    ]
    columns = ["network", "transform", ">kept", ">before", ">fit to the weights", ">compressed", ">points"]
    Console(width=110).print(table(columns, rows))


if __name__ == "__main__":
    main()
