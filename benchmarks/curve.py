"""Whole trade-off curves: one calibration a network, ten ratios and half of the mult-adds, every transform.

    python benchmarks/curve.py --weights DIR --cifar DIR --write [--only resnet56] [--processes 2]

512 images are looked at, 1,000 others tested on; each layer is fitted by itself (`--quick` of the command).
A process of one thread makes the students of one transform after the other. The transforms whose fits take
longest come last and are timed by themselves. What the result holds is not measured again. `--write` fills
the table of docs/compress.md too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import understudy as us
from compress import CIFAR, SLOW
from compress_page import PAGE
from marks import between_marks
from measure import RESULTS, provenance, write
from subjects import Folders, cifar, cifar_images
from understudy.experiments import Tradeoff, every_transform
from understudy.planning.budget import Budget

RATIOS = (0.95, 0.9, 0.83, 0.7, 0.59, 0.5, 0.4, 0.3, 0.2, 0.15)
TOLD = (0.9, 0.83, 0.7, 0.59, 0.5, 0.3)  # in the table
HALF = "half of the mult-adds"
LOOKED_AT, TESTED = 512, 1000


def quick_transforms() -> list[str]:
    """All whose fit to a layer takes no minutes."""
    return [name for name in every_transform() if name not in SLOW]


class Run:
    """What the students of one network are made from."""

    def __init__(self, name: str, folders: Folders, processes: int) -> None:
        self.name, self.processes = name, processes
        self.started = time.monotonic()
        subject = cifar(name, folders)
        tested = TensorDataset(*cifar_images(folders.cifar / "test_batch.bin", name, TESTED))
        half = us.cost(subject.model, subject.example).mult_adds // 2
        self.budgets = {Budget("ratio", share): str(share) for share in RATIOS}
        self.budgets[Budget("mult_adds", half)] = HALF
        self.curve = Tradeoff(
            subject.model, data=subject.batches, samples=LOOKED_AT, test=DataLoader(tested, 50), quick=True
        )
        self.curve.calibration, self.curve.yardstick  # noqa: B018  # once, before there are many processes

    def students(self, transforms: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Those of each transform, as they are done."""
        context = multiprocessing.get_context("fork")
        with context.Pool(self.processes, begin, (self.curve, self.budgets)) as pool:
            yield from pool.imap_unordered(students, transforms)

    def network(self) -> dict[str, Any]:
        """The curve of all quick transforms, and the seconds that it took."""
        found = sorted(
            self.students(quick_transforms()), key=lambda one: every_transform().index(one["transform"])
        )
        return {
            "network": self.name,
            "seconds": round(time.monotonic() - self.started, 1),
            "processes": self.processes,
            "accuracy": self.curve.yardstick.quality.accuracy,
            "cells": [cell for one in found for cell in one["cells"]],
            "refused": [cell for one in found for cell in one["refused"]],
            "provenance": provenance(),
        }


_WORK: dict[str, Any] = {}  # of a process: it cannot be handed over, and is there when the process begins


def begin(curve: Tradeoff, budgets: dict[Budget, str]) -> None:
    """Tell a process what it works on."""
    _WORK.update(curve=curve, budgets=budgets)


def students(transform: str) -> dict[str, Any]:
    """Those of one transform, what is out of its reach, and the seconds that all took."""
    started = time.monotonic()
    curve: Tradeoff = _WORK["curve"]
    budgets: dict[Budget, str] = _WORK["budgets"]
    refused: list[dict[str, str]] = []
    cells: list[dict[str, Any]] = []
    for budget, said in budgets.items():
        cell = {"transform": transform, "budget": said}
        try:
            record = curve.student(transform, budget).record
        except ValueError as error:  # out of its reach
            refused.append({**cell, "why": str(error)})
            continue
        cells.append(
            {
                **cell,
                "params": record.costs.params,
                "mult_adds": record.costs.mult_adds,
                "accuracy": record.quality.accuracy,
                "seconds": record.seconds,
            }
        )
        print(cells[-1], flush=True)
    seconds = round(time.monotonic() - started, 1)
    return {"transform": transform, "seconds": seconds, "cells": cells, "refused": refused}


def lines(networks: list[dict[str, Any]]) -> list[str]:
    """Accuracy by transform and budget, a table of markdown for every network."""
    found = []
    for network in networks:
        told = [*(str(share) for share in TOLD), HALF]
        count = network.get("processes", 1)
        processes = "one process" if count == 1 else f"{count} processes"
        slow = network.get("slow", [])
        cells = [*network["cells"], *(cell for one in slow for cell in one["cells"])]
        scores = {(cell["transform"], cell["budget"]): f"{cell['accuracy']:.1f}" for cell in cells}
        heads = [f"{100 * share:.0f} %" for share in TOLD] + [HALF]
        found += [
            f"**{network['network']}**, {network['accuracy']:.1f} % as it is; {len(network['cells'])} "
            f"students in {network['seconds'] / 60:.1f} minutes, by {processes}"
            + ("; then, by one process, " if slow else "")
            + ", ".join(f"`{one['transform']}` in {one['seconds'] / 60:.1f}" for one in slow)
            + ":",
            "",
            f"| | {' | '.join(heads)} |",
            "|---|" + "--:|" * len(heads),
        ]
        for transform in dict.fromkeys(cell["transform"] for cell in cells):
            numbers = [scores.get((transform, budget), "–") for budget in told]
            found.append(f"| `{transform}` | {' | '.join(numbers)} |")
        found.append("")
    return found


def filled(page: str, networks: list[dict[str, Any]]) -> str:
    """The page with what is between its two marks as the result says."""
    return between_marks(page, "curves", "".join(f"{line}\n" for line in lines(networks)))


def committed() -> list[dict[str, Any]]:
    """The curves of the result, where there is one."""
    path = RESULTS / "curve.json"
    networks: list[dict[str, Any]] = json.loads(path.read_text())["networks"] if path.is_file() else []
    return networks


def main() -> None:
    parser = argparse.ArgumentParser(description="Whole trade-off curves of trained networks.")
    for name in ("weights", "cifar"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--only", choices=CIFAR, help="this network alone")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/curve.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    networks = committed()

    def keep() -> None:
        if given.write:
            write("curve", {"networks": networks})
            PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), networks), encoding="utf-8")

    for name in [given.only] if given.only else CIFAR[1:] + CIFAR[:1]:
        network = next((one for one in networks if one["network"] == name), None)
        done = [] if network is None else [one["transform"] for one in network.get("slow", [])]
        missing = [transform for transform in SLOW if transform not in done]
        if not missing:
            continue
        run = Run(name, Folders(given.weights, given.cifar, Path(), Path()), given.processes)
        if network is None:
            network = run.network()
            networks.append(network)
            keep()
        slow = network.setdefault("slow", [])
        for one in run.students(missing):
            slow.append({**one, "provenance": provenance()})
            slow.sort(key=lambda one: SLOW.index(one["transform"]))
            keep()


if __name__ == "__main__":
    main()
