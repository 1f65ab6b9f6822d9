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
FAMILIES = ("low_rank", "tensor_train", "tucker", "hashed", "shuffle", "acdc")
CELLS = [
    *[("resnet20", family, ratio) for family in FAMILIES for ratio in (0.83, 0.7, 0.59, 0.5)],
    *[("resnet56", family, ratio) for family in FAMILIES[:2] for ratio in (0.7, 0.5)],
    *[("wrn_16_2", family, ratio) for family in FAMILIES[:2] for ratio in (0.5, 0.3)],
]
SAMPLES = 1024


def read_images(file: Path, network: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    records = np.fromfile(file, dtype=np.uint8).reshape(-1, 3073)[:count]
    mean, std = (torch.tensor(values)[:, None, None] for values in (WIDE if "wrn" in network else IMAGENET))
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()).float() / 255
    return (images - mean) / std, torch.from_numpy(records[:, 0].copy()).long()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    answers = torch.cat([model(part).argmax(1) for part in images.split(500)])
    return 100 * float((answers == labels).float().mean())


def measure(network: str, family: str, ratio: float, weights: Path, data: Path) -> dict[str, Any]:
    model = us.create_model(network)
    us.load_weights(model, weights / f"{network}_cifar10.safetensors")
    model.eval()
    seen, _ = read_images(data / "data_batch_1.bin", network, SAMPLES)
    images, labels = read_images(data / "test_batch.bin", network)
    started = time.monotonic()
    done = us.compression(model, family, ratio=ratio, data=seen.split(128), samples=SAMPLES)
    seconds = time.monotonic() - started
    plain = us.substitute(model, us.plan(model, family, ratio=ratio, spatial="unfolded"))
    return {
        "network": network,
        "transform": family,
        "ratio": ratio,
        "params": done.plan.params,
        "dense_params": done.plan.dense_params,
        "dense_accuracy": round(accuracy(model, images, labels), 2),
        "plain_accuracy": round(accuracy(us.merge(plain), images, labels), 2),
        "accuracy": round(accuracy(us.merge(done.student), images, labels), 2),
        "images": len(labels),
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
    for network, family, ratio in CELLS:
        if (network, family, ratio) not in held:
            cells.append(measure(network, family, ratio, arguments.weights, arguments.data))
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
