"""Cells and their run folders → results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from understudy import __version__
from understudy._util.provenance import Machine, commit
from understudy._util.records import RecordError, read_record
from understudy.planning.request import Request
from understudy.results import Costs, CurvePoint, ErrorRates, Result, Size, Status
from understudy.train import Recipe, Run
from understudy.train.figures import Epoch, Errors, Outcome

from .cell_costs import PlannedCell
from .task import MACHINE, MACHINE_FORMAT

Record = TypeVar("Record")


def new_result(grid: str, planned: PlannedCell) -> Result:
    """The result of a cell before it has run.

    >>> from understudy.experiments import load_grid, new_result, plan_cells
    >>> result = new_result("digits", plan_cells(load_grid("digits"))[1])
    >>> result.name, result.status.state, result.costs
    ('low_rank-30k-at-crs-seed-0', 'waiting', None)
    """
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
        structure=_structure(recipe.request),
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
        form_of=cell.form_of,
    )


def _structure(request: Request) -> str:
    """`shuffle`, or `shuffle:inside` where the depthwise part is: one grid may hold both."""
    return request.label + (":inside" if request.spatial == "inside" else "")


def _crs(recipe: Recipe) -> str:
    """What decay is scaled by the compression of, where it is for any of the transforms."""
    policies = dict(override.split("=", 1) for override in recipe.decay_overrides)
    scaled = any(policies.get(name, recipe.decay) == "crs" for name in recipe.request.transforms)
    return recipe.decay_scope if scaled else ""


def with_status(result: Result, folder: Path, status: Status) -> Result:
    """A result as the run in `folder` has left it."""
    run = Run(folder, Recipe())
    outcome = run.outcome() if status.state == "finished" else Outcome()
    return dataclasses.replace(
        result,
        status=status,
        commit=commit(),
        machine=_machine(folder / MACHINE),
        curve=learning_curve(run.metrics()),
        costs=_costs(outcome),
        errors=_error_rates(outcome.errors),
    )


def _machine(path: Path) -> Machine | None:
    """Where a run was trained; None where nothing that can be read tells."""
    try:
        return read_record(Machine, path, MACHINE_FORMAT)
    except (RecordError, OSError):
        return None


def _costs(outcome: Outcome) -> Costs | None:
    """What the trained network costs, where all of it was counted."""
    known = (outcome.params, outcome.mult_adds, outcome.ideal_mult_adds, outcome.bytes)
    params, mult_adds, ideal, size = known
    if params is None or mult_adds is None or ideal is None or size is None:
        return None
    return Costs(params, mult_adds, ideal, size)


def _error_rates(errors: Errors | None) -> ErrorRates | None:
    if errors is None:
        return None
    return ErrorRates(errors.test_error, errors.test_top5_error, errors.test_images)


def learning_curve(epochs: Iterable[Epoch]) -> tuple[CurvePoint, ...]:
    """The epochs of a run; what was not measured is not known."""
    return tuple(map(_point, epochs))


def _point(epoch: Epoch) -> CurvePoint:
    errors = epoch.errors
    return CurvePoint(
        epoch=epoch.epoch,
        step=epoch.step,
        learning_rate=epoch.learning_rate,
        train_loss=epoch.train_loss,
        train_error=epoch.train_error,
        test_loss=None if errors is None else errors.test_loss,
        test_error=None if errors is None else errors.test_error,
        test_top5_error=None if errors is None else errors.test_top5_error,
        seconds=epoch.seconds,
    )
