"""Trained networks compressed without any training, and after a while with the original as teacher.

    python benchmarks/compress.py --weights DIR --cifar DIR --imagenet DIR --texts DIR --write

1,024 inputs are looked at without labels (1,000 of EfficientNet), an eighth of them only to decide; scores
are on data that nobody has seen. Every cell is written as it ends: the same command goes on. `subjects.py`
says what the folders hold, `peers.py` what others do. `--only NAME` takes the cells of one network.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import understudy as us
from compress_page import fill, rows
from measure import RESULTS, write
from peers import PeerError, decomposed, narrower, params_of, pruned
from subjects import Folders, Subject, cifar_images, make
from understudy._util.provenance import commit
from understudy.experiments import every_transform
from understudy.students.file import file_size
from understudy.train import recover
from understudy.train.recover import SETTINGS

CIFAR = ("resnet20", "resnet56", "wrn_16_2")
RECOVERY = 300.0  # seconds
DISTILLATION = 600.0
ALONE = ("torch_pruning", "narrower")  # which the library does not make
SLOW = ("acdc", "blast", "toeplitz_like", "ldr")  # a descent for each of many layers: minutes a student


@dataclasses.dataclass(frozen=True)
class Cell:
    """A network, how it is made small, and how small."""

    network: str
    method: str  # a transform, "auto", or a peer
    share: float
    metric: str = "params"
    seconds: float = 0.0  # of recovery
    updates: int = 0  # or so many steps of it

    @property
    def key(self) -> tuple[object, ...]:
        """What a result is found by."""
        return dataclasses.astuple(self)


def cells() -> list[Cell]:
    """All of them, the most telling first."""
    wanted = {"resnet20": (0.83, 0.7, 0.59, 0.5), "resnet56": (0.7, 0.5), "wrn_16_2": (0.5, 0.3)}
    sentences, photographs = (0.9, 0.8, 0.7, 0.5), (0.95, 0.9, 0.8, 0.7)
    found = [Cell(network, "auto", share) for network in CIFAR for share in wanted[network]]
    found += [Cell("minilm", "pivoted", share) for share in sentences]
    found += [Cell("efficientnet_lite0", "pivoted", share) for share in photographs]
    found += [
        Cell(network, method, share, seconds=RECOVERY)
        for network, share in (("wrn_16_2", 0.5), ("resnet56", 0.5), ("wrn_16_2", 0.3))
        for method in ("auto", "torch_pruning")
    ]
    found += [Cell("wrn_16_2", method, 0.5, seconds=RECOVERY) for method in ("plain", "narrower")]
    found += [Cell("minilm", method, share) for method in ("low_rank", "auto") for share in sentences]
    found += [Cell("efficientnet_lite0", "pivoted", 0.8, seconds=DISTILLATION)]
    found += [Cell(network, "tensorly_torch", share) for network in CIFAR for share in wanted[network]]
    found += [
        Cell("efficientnet_lite0", method, share) for method in ("low_rank", "auto") for share in photographs
    ]
    found += [Cell(network, method, 0.5, "mult_adds") for method in ("pivoted", "auto") for network in CIFAR]
    names = sorted(every_transform(), key=SLOW.__contains__)
    found += [Cell(network, name, 0.5) for name in names for network in CIFAR]
    return _told_once(found)


def _told_once(found: list[Cell]) -> list[Cell]:
    """Without those whose score stands in a recovered cell, as the one before recovery."""
    recovered = {dataclasses.replace(cell, seconds=0.0) for cell in found if cell.seconds}
    return [cell for cell in dict.fromkeys(found) if cell not in recovered]


class Bench:
    """Subjects, made once each, and how a cell is measured; `quick` fits each layer by itself."""

    def __init__(self, folders: Folders, *, quick: bool = False) -> None:
        self.folders = folders
        self.quick = quick
        self.subject = functools.cache(lambda name: make(name, folders))

    def measured(self, cell: Cell) -> dict[str, Any]:
        """One cell: its score before and after."""
        subject = self.subject(cell.network)
        started = time.monotonic()
        student, told = self._made(cell, subject)
        seconds = time.monotonic() - started
        found = {"score": subject.score(us.merge(student)), "took": round(seconds, 1), **told}
        if cell.seconds or cell.updates:
            # Networks that are far from the original, or not trained at all, do with the larger rate.
            plain = {"learning_rate": SETTINGS.learning_rate, "rates": "same"}
            settings = plain if cell.method in ALONE else {}
            images, length = self._training(cell, subject)
            fitted = recover(student, subject.model, images, settings=settings, **length)
            found["recovered"] = subject.score(us.merge(fitted.network))
        return {
            **dataclasses.asdict(cell),
            "params": params_of(student),
            "dense_params": params_of(subject.model),
            "mult_adds": subject.mult_adds(student),
            "bytes": file_size(student),
            "dense_bytes": file_size(subject.model),
            "dense": subject.dense,
            **found,
        }

    def _made(self, cell: Cell, subject: Subject) -> tuple[nn.Module, dict[str, Any]]:
        """The student, and what is to be told of it."""
        params = subject.params(cell.share)
        budget, size = params, params_of
        if cell.metric == "mult_adds":
            size = subject.mult_adds
            budget = int(cell.share * size(subject.model))
        if cell.method == "torch_pruning":
            return pruned(subject.model, subject.example, budget, size), {}
        if cell.method == "tensorly_torch":
            return decomposed(subject.model, params), {}
        if cell.method == "narrower":
            return narrower(cell.network, params), {}
        if cell.method == "plain":
            return us.substitute(
                subject.model, us.plan(subject.model, "low_rank", params=params, spatial="unfolded")
            ), {}
        done = subject.compressed(cell.method, quick=self.quick, **{cell.metric: budget})
        told: dict[str, Any] = {"steps": [dataclasses.asdict(step) for step in done.steps]}
        if cell.metric == "params" and not self.quick:
            family = "low_rank" if cell.method == "auto" else cell.method
            plan = us.plan(subject.model, family, params=params, include=subject.include, spatial="unfolded")
            told["plain"] = subject.score(us.merge(us.substitute(subject.model, plan)))
        told["transforms"] = list(done.plan.transforms)
        return done.student, told

    def _training(self, cell: Cell, subject: Subject) -> tuple[Any, dict[str, Any]]:
        """Training images without their labels, else those that were looked at; and how long to train."""
        if subject.name not in CIFAR:
            epochs = cell.updates // len(subject.batches)
            return subject.batches, {"seconds": cell.seconds} if cell.seconds else {"epochs": epochs}
        files = sorted(self.folders.cifar.glob("data_batch_*.bin"))
        images = torch.cat(
            [cifar_images(file, subject.name)[0] for file in files[: 1 if cell.updates else None]]
        )
        if cell.seconds:
            return images, {"seconds": cell.seconds}
        return images[: cell.updates * SETTINGS.batch_size], {"epochs": 1}


def arguments(description: str) -> argparse.ArgumentParser:
    """Where the data are, and how much is to be measured."""
    parser = argparse.ArgumentParser(description=description)
    for name in ("weights", "cifar", "imagenet", "texts"):
        parser.add_argument(f"--{name}", type=Path, default=Path(name))
    parser.add_argument("--only", help="the cells of one network")
    parser.add_argument("--limit", type=float, default=120, help="minutes after which no cell is begun")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results")
    return parser


def keys(done: Iterable[dict[str, Any]]) -> set[tuple[object, ...]]:
    """What the cells of a result are found by."""
    fields = dataclasses.fields(Cell)
    return {tuple(cell.get(field.name, field.default) for field in fields) for cell in done}


def measure(
    name: str,
    wanted: list[Cell],
    given: argparse.Namespace,
    *,
    quick: bool = False,
    why_not: Callable[[Cell, list[dict[str, Any]]], str] = lambda *_: "",
) -> list[dict[str, Any]]:
    """All cells of results/NAME.json, those that it does not hold yet being measured first.

    `why_not` may say of a cell, knowing those that are done, why it is not worth its time.
    """
    bench = Bench(Folders(given.weights, given.cifar, given.imagenet, given.texts), quick=quick)
    file = RESULTS / f"{name}.json"
    done: list[dict[str, Any]] = json.loads(file.read_text())["cells"] if file.exists() else []
    held = keys(done)
    started = time.monotonic()
    for cell in wanted:
        is_late = time.monotonic() - started > 60 * given.limit
        if cell.key in held or is_late or (given.only and cell.network != given.only):
            continue
        refused = why_not(cell, done)
        try:
            found = {} if refused else bench.measured(cell)
        except (us.BudgetError, PeerError) as error:
            refused = str(error)
        if refused:
            found = {**dataclasses.asdict(cell), "refused": refused}
        done.append({**found, "commit": commit()})
        if given.write:
            write(name, {"cells": done})
        print(done[-1], flush=True)
    return done


def main() -> None:
    given = arguments("Scores of compressed networks, before and after recovery.").parse_args()
    done = measure("compress", cells(), given)
    print("\n".join(rows(done)))
    if given.write:
        fill(done)


if __name__ == "__main__":
    main()
