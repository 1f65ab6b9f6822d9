"""What attention transfer and CRS decay are worth: a WRN-16-2 student at 20 % of its parameters on CIFAR-10.

    python benchmarks/ablation.py TEACHER.safetensors CIFAR_FOLDER RUNS [--seed S] [--write]

TEACHER is a trained WRN-16-2; RUNS holds a folder for each of the eight runs. Stop it at any time: the same
command goes on where it stopped. With --seed only the runs of one seed are made, so that two processes can
share the work (OMP_NUM_THREADS=1 each); without it, finished ones are read and all are summed up. 10,000
training images and a few epochs make this a study of differences on two cores, not a record.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from pathlib import Path
from typing import Any

from measure import write
from understudy.train import Recipe, load_recipe, train

SETTINGS: dict[str, Any] = {
    "network": "wrn_16_2",
    "transform": "low_rank",
    "ratio": 0.2,
    "train_images": 10_000,
    "epochs": 8,
    "batch_size": 64,
    "learning_rate": 0.05,
    "schedule": "cosine",
    "milestones": [],
    "cutout": 0,
    "checkpoint_seconds": 60,
}
SEEDS = (0, 1)
ATTENTION = (0.0, 1000.0)
DECAY = ("none", "crs")


def recipe(teacher: Path, attention: float, decay: str, seed: int) -> Recipe:
    return load_recipe(
        "wrn_28_10_cifar10",
        SETTINGS
        | {
            "name": "ablation",
            "teacher": str(teacher) if attention else "",
            "attention": attention,
            "decay": decay,
            "seed": seed,
        },
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Attention transfer and CRS decay, with and without.")
    parser.add_argument("teacher", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seed", type=int, choices=SEEDS, help="only the runs of this seed")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/ablation.json")
    arguments = parser.parse_args()
    cells = []
    seeds = SEEDS if arguments.seed is None else (arguments.seed,)
    for seed, attention, decay in itertools.product(seeds, ATTENTION, DECAY):
        folder = arguments.runs / f"attention-{attention:g}-decay-{decay}-seed-{seed}"
        print(folder.name, flush=True)
        result = train(
            recipe(arguments.teacher, attention, decay, seed),
            folder,
            data_folder=arguments.data,
            report=lambda line: print(f"  {line}", flush=True),
        )
        cells.append({"attention": attention, "decay": decay, "seed": seed, **result})
    if arguments.seed is not None:
        return
    groups = []
    for attention, decay in itertools.product(ATTENTION, DECAY):
        errors = [
            cell["test_error"] for cell in cells if (cell["attention"], cell["decay"]) == (attention, decay)
        ]
        groups.append(
            {
                "attention": attention,
                "decay": decay,
                "test_error": statistics.mean(errors),
                "spread": statistics.stdev(errors),
                "n": len(errors),
            }
        )
        print(f"attention {attention:6g}  decay {decay:4}  error {groups[-1]['test_error']:.2f}", end="")
        print(f" ± {groups[-1]['spread']:.2f} (n={len(errors)})")
    if arguments.write:
        print(write("ablation", {"settings": SETTINGS, "groups": groups, "runs": cells}))


if __name__ == "__main__":
    main()
