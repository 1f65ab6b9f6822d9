"""Results as a sweep writes them, without training anything; the same on every call."""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from understudy._util.provenance import Machine
from understudy.planning.budget import Budget
from understudy.results import Costs, CurvePoint, ErrorRates, PlannedCosts, Result, Size, Speed, State, Status

TRANSFORMS = ("low_rank", "tensor_train", "tucker", "acdc", "hashed", "shuffle")
FULL = {"wrn_10_2": 303_706, "wrn_28_10": 36_479_194, "wrn_50_2": 68_883_240}
MACHINE = Machine("x86_64", 2, "cpu", "2.13.0", "3.11.7", 2)


def size(params: str | int) -> Size:
    budget = Budget("params", parse(params))
    return Size("params", float(budget.amount), budget.label)


def parse(params: str | int) -> int:
    return int(Budget.of(params=params).amount)


def errors(top1: float) -> ErrorRates:
    return ErrorRates(top1, round(top1 / 9, 2), 500)


def result(
    name: str = "cell",
    *,
    settings: Mapping[str, Any] | None = None,
    state: State = "finished",
    **changes: Any,
) -> Result:
    """One student, finished unless `state` says otherwise; `settings` are of its recipe."""
    done = state == "finished"
    made = Result(
        understudy="0.1.0",
        commit="0123456789abcdef",
        grid="synthetic",
        name=name,
        id=f"id-{name}",
        role="student",
        status=Status(state, str(changes.pop("reason", ""))),
        network="wrn_10_2",
        data="digits",
        structure="low_rank",
        transforms=(),
        budget=size("24k"),
        attention=10.0,
        decay="crs",
        crs="layer",
        seed=0,
        epochs=12,
        teacher="id-teacher-seed-0",
        deciding={},
        indifferent={},
        planned=PlannedCosts(23_990, 1_234_567, 1_200_000, 2_000_000),
        costs=Costs(23_990, 1_234_567, 1_200_000, 101_234) if done else None,
        errors=errors(4.8) if done else None,
        speed=Speed(1234.5, 1.9, 64, 2) if done else None,
        curve=curve(4.8, 12, random.Random(0)) if done else (),
        machine=MACHINE,
    )
    made = dataclasses.replace(made, **changes)
    if made.decay == "none" or not made.structure:
        made = dataclasses.replace(made, crs="")
    return dataclasses.replace(
        made,
        transforms=(made.structure,) if made.structure else (),
        deciding=deciding(made) | dict(settings or {}),
        indifferent={"name": "demo", "teacher": "runs/teacher", "workers": 0} | dict(made.indifferent),
    )


def deciding(of: Result) -> dict[str, Any]:
    budget = {"metric": of.budget.metric, "amount": of.budget.amount} if of.budget else None
    return {
        "network": of.network,
        "data": of.data,
        "seed": of.seed,
        "request": {
            "transform": {"*": of.structure} if of.structure else {},
            "budget": budget if of.structure else None,
            "exclude": [],
        },
        "epochs": 12,
        "batch_size": 64,
        "learning_rate": 0.05,
        "schedule": "cosine",
        "weight_decay": 5e-4,
        "decay": of.decay,
        "attention": of.attention,
        "taps": ["stage1", "stage2"] if of.attention else [],
    }


def curve(last: float, epochs: int, dice: random.Random) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(
            epoch=epoch,
            step=20 * (epoch + 1),
            learning_rate=0.05,
            train_loss=1.2,
            train_error=0.8 * (test := last + 60 * math.exp(-6 * epoch / epochs) * dice.uniform(0.8, 1.2)),
            test_loss=1.1,
            test_error=last if epoch == epochs - 1 else test,
            test_top5_error=1.0,
            seconds=3.2,
        )
        for epoch in range(epochs)
    )


def teacher(network: str = "wrn_10_2", data: str = "digits", seed: int = 0, **changes: Any) -> Result:
    params = FULL.get(network, 300_000)
    dressed: dict[str, Any] = {
        "id": f"id-teacher-{network}-{seed}",
        "role": "teacher",
        "network": network,
        "data": data,
        "structure": "",
        "budget": None,
        "attention": 0.0,
        "seed": seed,
        "teacher": "",
        "planned": PlannedCosts(params, 90 * params, 90 * params, 90 * params),
        "costs": Costs(params, 90 * params, 90 * params, 4 * params),
        "errors": errors(2.2),
        "speed": Speed(900.0, 4.1, 64, 2),
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
    prefix: str = "",
) -> list[Result]:
    """A teacher, narrower baselines and students; with `ablate` each also without AT and without CRS."""
    dice = random.Random(7)
    base = teacher(network, data, curve=curve(2.2, epochs, dice))
    made = [dataclasses.replace(base, name=f"{prefix}{base.name}")]
    for budget in budgets:
        text = size(budget).label
        narrower = {"role": "baseline", "network": f"{network.rpartition('_')[0]}_0.5", "teacher": ""}
        made.append(student(f"{prefix}narrow-{text}", "", budget, dice, epochs, base, **narrower))
        for transform in transforms:
            for attention, decay in ((10.0, "crs"), (0.0, "crs"), (10.0, "none"))[: 3 if ablate else 1]:
                for seed in seeds:
                    ending = f"{'-at' if attention else ''}{'-crs' if decay == 'crs' else ''}-seed-{seed}"
                    settings = {"attention": attention, "decay": decay, "seed": seed}
                    name = f"{prefix}{transform}-{text}{ending}"
                    made.append(student(name, transform, budget, dice, epochs, base, **settings))
    return made


def student(
    name: str, transform: str, budget: int, dice: random.Random, epochs: int, base: Result, **settings: Any
) -> Result:
    assert base.costs is not None
    params = round(budget * dice.uniform(0.94, 1.0))
    share = params / base.costs.params
    mult_adds = round(base.costs.mult_adds * (share * dice.uniform(0.6, 1.2)) ** 0.8)
    error = 2.2 + 1.6 * (-math.log(share)) ** 0.9 * dice.uniform(0.5, 1.2)
    error += 0.8 * (not settings.get("attention", 10.0)) - 0.3 * (settings.get("decay") == "none")
    facts: dict[str, Any] = {
        "network": base.network,
        "data": base.data,
        "structure": transform,
        "budget": size(budget),
        "teacher": base.id,
        "planned": PlannedCosts(params, mult_adds, mult_adds, mult_adds),
        "costs": Costs(params, mult_adds, mult_adds, 4 * params + 9_000),
        "errors": errors(round(error, 2)),
        "speed": Speed(round(dice.uniform(700, 2500), 1), round(dice.uniform(0.8, 4), 2), 64, 2),
        "curve": curve(round(error, 2), epochs, dice),
    }
    return result(name, **{**facts, **settings})


def unfinished() -> list[Result]:
    """One of every other state, with what a sweep leaves empty in it."""
    return [
        result("diverged-cell", state="diverged", reason="loss is nan at step 812", budget=size("6k")),
        result("failed-cell", state="failed", reason="RuntimeError: out of memory", budget=size("5k")),
        result(
            "unreachable-cell",
            state="unreachable",
            reason="acdc on wrn_10_2: 2,000 parameters are below 7,018",
            budget=size("2k"),
            planned=None,
        ),
        result("running-cell", state="running", budget=size("8k")),
        result("waiting-cell", state="waiting", budget=size("9k"), machine=None),
    ]


@contextmanager
def without_matplotlib() -> Iterator[None]:
    """As where matplotlib is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
            patch.delitem(sys.modules, name)
        patch.setitem(sys.modules, "matplotlib", None)
        yield
