"""What it gains that a teacher answers once: a step that asks it beside one that reads its answers.

    python benchmarks/answers.py --weights DIR --cifar DIR [--write]

Students of the study's recipe, WRN-16-2 their teacher, by one thread. Each is trained three times on the same
batches: without a place for answers, then with one that is empty, then with one that is full. The median step
of the second epoch, which does without what begins a run. CIFAR is the folder with `cifar-10-batches-bin`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from marks import between_marks
from measure import RESULTS, write
from understudy.train import load_recipe, train
from understudy.train.answers import Keep

STUDENTS: dict[str, dict[str, str]] = {
    "a dense network of the same parameters": {"network": "wrn_16_0.445"},
    "`low_rank`, separable": {"transform": "low_rank", "params": "35k"},
    "`low_rank`, inside": {"transform": "low_rank", "params": "35k", "spatial": "inside"},
}
IMAGES = 128 * 24
PAGE = Path(__file__).parent.parent / "docs" / "experiments.md"
WAYS = ("asked in every step", "asked and kept", "read")


def step_ms(recipe: Any, out: Path, data: Path, keep: Keep | None) -> float:
    """The median of the second epoch."""
    times: list[float] = []
    train(recipe, out, data_folder=data, keep=keep, watch=lambda *_: times.append(time.monotonic()))
    later = times[len(times) // 2 :]
    return 1000 * statistics.median(after - before for before, after in itertools.pairwise(later))


def measured(weights: Path, cifar: Path) -> list[dict[str, Any]]:
    """Every student in every way."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place, (student, settings) in enumerate(STUDENTS.items()):
            changes = {"epochs": 2, "train_images": IMAGES, "teacher_network": "wrn_16_2", **settings}
            changes["teacher"] = str(weights / "wrn_16_2_cifar10.safetensors")
            recipe = load_recipe("cifar10_fast", changes)
            kept = Keep(folder / f"answers-{place}", 10**9)
            places = (None, kept, kept)
            times = {
                way: round(step_ms(recipe, folder / f"{place}-{number}", cifar, where), 1)
                for number, (way, where) in enumerate(zip(WAYS, places, strict=True))
            }
            found.append({"student": student, "step_ms": times})
            print(found[-1], flush=True)
    return found


def filled(page: str, found: list[dict[str, Any]]) -> str:
    """The page with its table as the result says."""
    rows = ["| student | asks in every step | asks and keeps | reads |", "|---|--:|--:|--:|"]
    rows += [
        f"| {one['student']} | " + " | ".join(f"{one['step_ms'][way]:.0f} ms" for way in WAYS) + " |"
        for one in found
    ]
    return between_marks(page, "answers", "\n".join(rows) + "\n\n")


def committed() -> list[dict[str, Any]]:
    """The steps of the result."""
    found: list[dict[str, Any]] = json.loads((RESULTS / "answers.json").read_text())["students"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("weights", "cifar"):
        parser.add_argument(f"--{name}", type=Path, default=Path(name))
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/answers.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = measured(given.weights, given.cifar)
    if given.write:
        print(write("answers", {"students": found}))
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
