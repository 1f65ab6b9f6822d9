"""A trained network and its students as ONNX files of single precision and of eight bits.

    python benchmarks/eight_bits.py --weights DIR --cifar DIR --write

Students of WRN-16-2 in half of its parameters, each layer fitted by itself, nothing trained; eight bits are
calibrated by 256 of the images that were looked at. Accuracy on 1,000 test images, all files timed in turns.
`--write` fills the table of docs/deployment.md too.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import understudy as us
from compress import arguments
from marks import between_marks
from measure import RESULTS, best_of, write
from subjects import Folders, cifar_images, make
from understudy.deploy.runtimes import Runner, opened

NETWORK = "wrn_16_2"
SHARE = 0.5
TESTED, BATCH, ROUNDS = 1000, 8, 60
TRANSFORMS = ("low_rank", "btt", "hashed", "tucker", "tensor_train")
PAGE = Path(__file__).parent.parent / "docs" / "deployment.md"
HEAD = [
    "| | file | of eight bits | accuracy | of eight bits | time | of eight bits |",
    "|---|--:|--:|--:|--:|--:|--:|",
]


def measured(folders: Folders) -> list[dict[str, Any]]:
    """The original and its students, each in both files."""
    subject = make(NETWORK, folders)
    images, labels = cifar_images(folders.cifar / "test_batch.bin", NETWORK, TESTED)
    networks = {"dense": subject.model}
    for name in TRANSFORMS:
        networks[name] = subject.compressed(name, params=subject.params(SHARE), quick=True).student
    done: dict[str, dict[str, Any]] = {}
    runners: dict[str, Runner] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, network in networks.items():
            done[name] = {"transform": name, "params": sum(each.numel() for each in network.parameters())}
            for kind, calibration in (("float32", None), ("int8", subject.batches[:2])):
                path = Path(folder) / f"{name}.{kind}.onnx"
                made = us.export(network, path, images[:BATCH], int8=calibration)
                run = runners[f"{name} {kind}"] = opened(path, "onnx")
                right = sum(
                    int((run(some)[0].argmax(1) == wanted).sum())
                    for some, wanted in zip(images.split(100), labels.split(100), strict=True)
                )
                done[name][kind] = {"bytes": made.bytes, "top1": 100 * right / TESTED}
            print(done[name], flush=True)
        calls = {name: functools.partial(run, images[:BATCH]) for name, run in runners.items()}
        for name, time_ms in best_of(calls, ROUNDS).items():
            transform, _, kind = name.partition(" ")
            done[transform][kind]["time_ms"] = time_ms
    return list(done.values())


def lines(cells: Sequence[dict[str, Any]]) -> list[str]:
    """The table of the page."""
    rows = []
    for cell in cells:
        pair = [cell[kind] for kind in ("float32", "int8")]
        name = cell["transform"] if cell["transform"] == "dense" else f"`{cell['transform']}`"
        numbers = [
            *(f"{one['bytes'] / 1e6:.2f} MB" for one in pair),
            *(f"{one['top1']:.1f} %" for one in pair),
            *(f"{one['time_ms']:.2f} ms" for one in pair),
        ]
        rows.append(f"| {name} | {' | '.join(numbers)} |")
    return [*HEAD, *rows]


def filled(page: str, cells: Sequence[dict[str, Any]]) -> str:
    """The page with its table as the result says."""
    return between_marks(page, "eight bits", "\n".join([*lines(cells), "", ""]))


def committed() -> list[dict[str, Any]]:
    """The cells of the result."""
    found: list[dict[str, Any]] = json.loads((RESULTS / "eight_bits.json").read_text())["cells"]
    return found


def main() -> None:
    given = arguments((__doc__ or "").partition("\n")[0]).parse_args()
    cells = measured(Folders(given.weights, given.cifar, given.imagenet, given.texts))
    print("\n".join(lines(cells)))
    if given.write:
        write("eight_bits", {"network": NETWORK, "share": SHARE, "batch": BATCH, "cells": cells})
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), cells), encoding="utf-8")


if __name__ == "__main__":
    main()
