"""Cells and their run folders → results."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from understudy import __version__
from understudy._util.provenance import Machine, commit
from understudy._util.records import from_plain, read_record
from understudy.results import Costs, CurvePoint, ErrorRates, Result, Size, Status
from understudy.train import Recipe, Run
from understudy.train.run import RESULT

from .cell_costs import PlannedCell
from .task import MACHINE, MACHINE_FORMAT

Record = TypeVar("Record")


def new_result(grid: str, planned: PlannedCell) -> Result:
    """The result of a cell before it has run."""
    cell, recipe = planned.cell, planned.cell.recipe
    deciding = recipe.deciding()
    budget = cell.budget
    return Result(
        understudy=__version__,
        commit=None,
        grid=grid,
        name=cell.name,
        id=cell.id,
        role=cell.role,
        status=Status("waiting") if planned.costs else Status("unreachable", planned.reason),
        network=recipe.network,
        data=recipe.data,
        structure=recipe.request.label,
        transforms=recipe.request.transforms,
        budget=Size(budget.metric, float(budget.amount), budget.label) if budget else None,
        attention=recipe.attention,
        decay=recipe.decay,
        crs=_crs(recipe),
        seed=recipe.seed,
        epochs=recipe.epochs,
        teacher=cell.teacher,
        deciding=deciding,
        indifferent={key: value for key, value in recipe.to_dict().items() if key not in deciding},
        planned=planned.costs,
    )


def _crs(recipe: Recipe) -> str:
    """What decay is scaled by the compression of, where it is for any of the transforms."""
    policies = dict(override.split("=", 1) for override in recipe.decay_overrides)
    scaled = any(policies.get(name, recipe.decay) == "crs" for name in recipe.request.transforms)
    return recipe.decay_scope if scaled else ""


def with_status(result: Result, folder: Path, status: Status) -> Result:
    """A result as the run in `folder` has left it."""
    run = Run(folder, Recipe())
    last = run.read_json(RESULT)
    tested = {"top1": last.get("test_error"), "top5": last.get("test_top5_error")}
    finished = status.state == "finished"
    machine = folder / MACHINE
    return dataclasses.replace(
        result,
        status=status,
        commit=commit(),
        machine=read_record(Machine, machine, MACHINE_FORMAT) if machine.exists() else None,
        curve=learning_curve(run.metrics()),
        costs=_part(Costs, last) if finished else None,
        errors=_part(ErrorRates, {**last, **tested}) if finished else None,
    )


def learning_curve(metrics: Iterable[Mapping[str, Any]]) -> tuple[CurvePoint, ...]:
    """The epochs of a run; what was not measured, or is no finite number, is not known."""
    nothing = dict.fromkeys(("train_loss", "train_error", "test_loss", "test_error", "test_top5_error"))
    return tuple(
        _part(CurvePoint, {**nothing, **{key: _finite(value) for key, value in line.items()}})
        for line in metrics
    )


def _part(kind: type[Record], content: Mapping[str, Any]) -> Record:
    """The fields of a record out of a table that holds more."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return from_plain(kind, {name: content[name] for name in names if name in content})


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
