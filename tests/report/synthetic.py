"""Results as a sweep writes them, without training anything; the same on every call."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

TRANSFORMS = ("low_rank", "tensor_train", "tucker", "acdc", "hashed", "shuffle")
FULL = {"wrn_10_2": 303_706, "wrn_28_10": 36_479_194, "wrn_50_2": 68_883_240}


def result(name: str = "cell", **changes: Any) -> dict[str, Any]:
    """One finished student; `changes` replace whole entries of it."""
    made: dict[str, Any] = {
        "format": 1,
        "understudy": "0.1.0",
        "grid": "synthetic",
        "name": name,
        "id": f"id-{name}",
        "role": "student",
        "status": "finished",
        "reason": "",
        "network": "wrn_10_2",
        "data": "digits",
        "transform": "low_rank",
        "budget": "24k params",
        "attention": 10.0,
        "decay": "crs",
        "seed": 0,
        "teacher": "id-teacher-seed-0",
        "planned": {
            "params": 23_990,
            "mult_adds": 1_234_567,
            "ideal_mult_adds": 1_200_000,
            "matrix_mult_adds": 2_000_000,
        },
        "costs": {"params": 23_990, "mult_adds": 1_234_567, "ideal_mult_adds": 1_200_000, "bytes": 101_234},
        "error": {"top1": 4.8, "top5": 0.2, "test_images": 500},
        "speed": {"images_per_second": 1234.5, "latency_ms": 1.9, "batch_size": 64, "threads": 2},
        "curve": curve(4.8, 12, random.Random(0)),
        "commit": "0123456789abcdef",
        "machine": {"platform": "x86_64", "cores": 2, "device": "cpu", "torch": "2.13.0", "python": "3.11.7"},
        "seconds": 31.2,
    }
    made |= changes
    made["recipe"] = recipe(made) | changes.get("recipe", {})
    return made


def recipe(of: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "demo",
        "network": of["network"],
        "data": of["data"],
        "seed": of["seed"],
        "transform": of["transform"],
        "params": str(of["budget"]).removesuffix(" params"),
        "epochs": 12,
        "batch_size": 64,
        "learning_rate": 0.05,
        "schedule": "cosine",
        "weight_decay": 5e-4,
        "decay": of["decay"],
        "attention": of["attention"],
        "teacher": "runs/teacher",
        "taps": ["stage1", "stage2"] if of["attention"] else [],
        "exclude": [],
    }


def curve(last: float, epochs: int, dice: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "step": 20 * (epoch + 1),
            "learning_rate": 0.05,
            "train_loss": 1.2,
            "train_error": 0.8 * (test := last + 60 * math.exp(-6 * epoch / epochs) * dice.uniform(0.8, 1.2)),
            "test_loss": 1.1,
            "test_error": last if epoch == epochs - 1 else test,
            "test_top5_error": 1.0,
            "seconds": 3.2,
        }
        for epoch in range(epochs)
    ]


def teacher(network: str = "wrn_10_2", data: str = "digits", seed: int = 0, **changes: Any) -> dict[str, Any]:
    params = FULL.get(network, 300_000)
    costs = {"params": params, "mult_adds": 90 * params, "ideal_mult_adds": 90 * params, "bytes": 4 * params}
    dressed = {
        "id": f"id-teacher-{network}-{seed}",
        "role": "teacher",
        "network": network,
        "data": data,
        "transform": "",
        "budget": "",
        "attention": 0.0,
        "seed": seed,
        "teacher": "",
        "planned": costs,
        "costs": costs,
        "error": {"top1": 2.2, "top5": 0.0, "test_images": 500},
        "speed": {"images_per_second": 900.0, "latency_ms": 4.1, "batch_size": 64, "threads": 2},
    }
    return result(f"teacher-{network}-seed-{seed}", **{**dressed, **changes})


def sweep(
    transforms: Sequence[str] = TRANSFORMS,
    budgets: Sequence[int] = (12_000, 24_000),
    seeds: Sequence[int] = (0,),
    *,
    network: str = "wrn_10_2",
    data: str = "digits",
    ablate: bool = False,
    epochs: int = 12,
) -> list[dict[str, Any]]:
    """A teacher, narrower baselines and students; with `ablate` each also without AT and without CRS."""
    dice = random.Random(7)
    base = teacher(network, data)
    base["curve"] = curve(2.2, epochs, dice)
    made = [base]
    for budget in budgets:
        text = f"{budget / 1e6:g}M" if budget >= 1_000_000 else f"{budget / 1000:g}k"
        made.append(
            student(f"narrow-{text}", "", budget, text, dice, epochs, base)
            | {"role": "baseline", "network": f"{network.rpartition('_')[0]}_0.5", "teacher": ""}
        )
        for transform in transforms:
            for attention, decay in ((10.0, "crs"), (0.0, "crs"), (10.0, "none"))[: 3 if ablate else 1]:
                for seed in seeds:
                    ending = f"{'-at' if attention else ''}{'-crs' if decay == 'crs' else ''}-seed-{seed}"
                    settings = {"attention": attention, "decay": decay, "seed": seed}
                    name = f"{transform}-{text}{ending}"
                    made.append(student(name, transform, budget, text, dice, epochs, base, **settings))
    return made


def student(
    name: str,
    transform: str,
    budget: int,
    text: str,
    dice: random.Random,
    epochs: int,
    base: dict[str, Any],
    **settings: Any,
) -> dict[str, Any]:
    params = round(budget * dice.uniform(0.94, 1.0))
    share = params / base["costs"]["params"]
    mult_adds = round(base["costs"]["mult_adds"] * (share * dice.uniform(0.6, 1.2)) ** 0.8)
    error = 2.2 + 1.6 * (-math.log(share)) ** 0.9 * dice.uniform(0.5, 1.2)
    error += 0.8 * (not settings.get("attention", 10.0)) - 0.3 * (settings.get("decay") == "none")
    costs = {
        "params": params,
        "mult_adds": mult_adds,
        "ideal_mult_adds": mult_adds,
        "bytes": 4 * params + 9_000,
    }
    return result(
        name,
        network=base["network"],
        data=base["data"],
        transform=transform,
        budget=f"{text} params",
        teacher=base["id"],
        planned=costs,
        costs=costs,
        error={"top1": round(error, 2), "top5": round(error / 9, 2), "test_images": 500},
        speed={
            "images_per_second": round(dice.uniform(700, 2500), 1),
            "latency_ms": round(dice.uniform(0.8, 4), 2),
            "batch_size": 64,
            "threads": 2,
        },
        curve=curve(round(error, 2), epochs, dice),
        **settings,
    )


def unfinished() -> list[dict[str, Any]]:
    """One of every other state, with what a sweep leaves empty in it."""
    empty: dict[str, Any] = {"costs": None, "error": None, "speed": None, "curve": [], "seconds": 0.0}
    return [
        result(
            "diverged-cell", status="diverged", reason="loss is nan at step 812", budget="6k params", **empty
        ),
        result(
            "failed-cell", status="failed", reason="RuntimeError: out of memory", budget="5k params", **empty
        ),
        result(
            "unreachable-cell",
            status="unreachable",
            reason="acdc on wrn_10_2: 2,000 parameters are below 7,018 to 48,682",
            budget="2k params",
            **(empty | {"planned": None}),
        ),
        result("running-cell", status="running", budget="8k params", **empty),
        result("waiting-cell", status="waiting", budget="9k params", **(empty | {"seconds": None})),
    ]


@contextmanager
def without_matplotlib() -> Iterator[None]:
    """As where matplotlib is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "matplotlib", None)
        yield
