"""The plan of every cell and what its network will cost, before anything is trained: arithmetic on shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from understudy import data
from understudy.networks.models import weightless
from understudy.planning.plan import Plan
from understudy.planning.planner import plan
from understudy.planning.request import Request
from understudy.planning.sites import Sites, sites
from understudy.results import PlannedCosts
from understudy.train import Recipe
from understudy.train.student import dense_network

from .cell import Cell
from .checks import GridError
from .grid import Grid


@dataclasses.dataclass(frozen=True)
class PlannedCell:
    """A cell, its plan (None for a dense network) and its cost, or why there is no such network.

    >>> from understudy.experiments import load_grid, plan_cells
    >>> planned = plan_cells(load_grid("digits"))[1]
    >>> planned.cell.name, planned.plan.params == planned.costs.params
    ('low_rank-30k-at-crs-seed-0', True)
    """

    cell: Cell
    plan: Plan | None
    costs: PlannedCosts | None
    reason: str = ""


def plan_cells(grid: Grid, data_folder: Path | None = None) -> list[PlannedCell]:
    """Plan every cell; a GridError lists all that cannot be reached, unless the grid skips those.

    >>> from understudy.experiments import load_grid, plan_cells
    >>> planned = plan_cells(load_grid("digits"))
    >>> all(item.costs.params <= 30_000 for item in planned if item.cell.role == "student")
    True
    """
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
    """Looks at every network once, and plans every (network, request) once."""

    def __init__(self, data_folder: Path | None) -> None:
        self.data_folder = data_folder
        self.survey = cache(self._survey)
        self.planned = cache(self._planned)

    def plan(self, cells: Sequence[Cell]) -> list[PlannedCell]:
        planned = []
        for cell in cells:
            recipe = cell.recipe
            try:
                if cell.unreachable:
                    raise ValueError(cell.unreachable)
                made, costs = self.planned(recipe.network, recipe.data, recipe.request)
                planned.append(PlannedCell(cell, made, costs))
            except ValueError as error:
                planned.append(PlannedCell(cell, None, None, str(error)))
        return planned

    def _survey(
        self, network: str, data_set: str, include: tuple[str, ...], exclude: tuple[str, ...]
    ) -> Sites:
        classes, shape = data.facts(data_set, self.data_folder)
        with weightless(network):
            model = dense_network(Recipe(network=network), classes, training=False)
        example = torch.zeros(1, *shape, device="meta")
        return sites(model, example, include=list(include) or None, exclude=list(exclude) or None)

    def _planned(self, network: str, data_set: str, request: Request) -> tuple[Plan | None, PlannedCosts]:
        survey = self.survey(network, data_set, request.include, request.exclude)
        if not request.transform:
            assert survey.mult_adds is not None
            return None, PlannedCosts(survey.params, *[survey.mult_adds] * 3)
        made = plan(survey, request=request)
        assert made.mult_adds is not None  # there is an example
        assert made.ideal_mult_adds is not None
        assert made.matrix_mult_adds is not None
        return made, PlannedCosts(made.params, made.mult_adds, made.ideal_mult_adds, made.matrix_mult_adds)
