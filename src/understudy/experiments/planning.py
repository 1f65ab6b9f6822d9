"""What every cell will cost, before anything is trained: arithmetic on shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from understudy import data
from understudy.networks import nets
from understudy.planning.planner import plan
from understudy.planning.sites import Sites, sites
from understudy.train import Recipe
from understudy.train.student import dense_network, plan_arguments

from .cell import Cell
from .checks import GridError
from .grid import Grid

Costs = dict[str, int]
_MULT_ADDS = ("mult_adds", "ideal_mult_adds", "matrix_mult_adds")


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell and the cost of its network, or the reason why there is no such network."""

    cell: Cell
    costs: Costs | None
    reason: str = ""


def plan_cells(grid: Grid, data_folder: Path | None = None) -> list[PlannedCell]:
    """Plan every cell; a GridError lists all that cannot be reached, unless the grid skips those."""
    planned = _Surveys(data_folder).plan(grid.cells)
    missed = [item for item in planned if item.costs is None]
    if missed and not grid.skip_unreachable:
        listed = "; ".join(f"{item.cell.name}: {item.reason}" for item in missed)
        raise GridError(
            f"{len(missed)} of {len(planned)} cells cannot be reached ({listed}): change their budgets, "
            "or write unreachable = 'skip' to go on without them"
        )
    return planned


class _Surveys:
    """Looks at every network once, and plans every (network, transform, budget) once."""

    def __init__(self, data_folder: Path | None) -> None:
        self.data_folder = data_folder
        self.survey = cache(self._survey)
        self.costs = cache(self._costs)

    def plan(self, cells: Sequence[Cell]) -> list[PlannedCell]:
        planned = []
        for cell in cells:
            try:
                if cell.unreachable:
                    raise ValueError(cell.unreachable)
                planned.append(PlannedCell(cell, self.costs(_only_what_counts(cell.recipe))))
            except ValueError as error:
                planned.append(PlannedCell(cell, None, str(error)))
        return planned

    def _survey(self, network: str, data_set: str, exclude: tuple[str, ...]) -> Sites:
        classes, shape = data.facts(data_set, self.data_folder)
        with torch.device("meta" if nets.is_builtin(network) else "cpu"):  # others may look at their weights
            model = dense_network(Recipe(network=network), classes, training=False)
        return sites(model, torch.zeros(1, *shape, device="meta"), exclude=list(exclude) or None)

    def _costs(self, recipe: Recipe) -> Costs:
        survey = self.survey(recipe.network, recipe.data, recipe.request.exclude)
        if not recipe.request.transform:
            assert survey.mult_adds is not None
            return {"params": survey.params, **dict.fromkeys(_MULT_ADDS, survey.mult_adds)}
        asked = plan_arguments(dataclasses.replace(recipe.request, include=(), exclude=()))
        made = plan(survey, **asked)
        return {"params": made.params, **{key: getattr(made, key) for key in _MULT_ADDS}}


def _only_what_counts(recipe: Recipe) -> Recipe:
    """The recipe of the same network at any seed and with any training."""
    return Recipe(network=recipe.network, data=recipe.data, request=recipe.request)
