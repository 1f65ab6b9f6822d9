"""A cell: one run of a grid, its name, and what it is, whatever it is called."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cached_property

from understudy._util.names import file_name
from understudy.planning.budget import UNITS, Budget
from understudy.planning.request import Request
from understudy.results import Role
from understudy.train import Recipe


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a grid. In its recipe, `teacher` is the name of the teacher's cell.

    >>> from understudy.experiments import load_grid
    >>> cell = load_grid("digits").cells[1]
    >>> cell.name, cell.role, cell.recipe.structure, cell.recipe.teacher
    ('low_rank-30k-at-crs-seed-0', 'student', 'low_rank', 'teacher-seed-0')
    """

    name: str
    role: Role
    recipe: Recipe
    budget: Budget | None = None  # a baseline's, too
    teacher: str = ""  # what its teacher is: the id of that cell, or the identity of what stands for it
    unreachable: str = ""  # why there is no such network, where there is none
    form: str = ""  # of a baseline that is another network's: narrow or shallow
    form_of: str = ""  # that network

    @cached_property
    def id(self) -> str:
        """The identity of its run: all that decides the outcome, not the name, and the teacher by what it is.

        What cannot be reached has no run; it is known by what was asked.
        """
        identity = self.recipe.identity(teacher=self.teacher)
        return short_hash([identity, str(self.budget), self.form]) if self.unreachable else identity


def short_hash(content: object) -> str:
    """Ten characters that follow from the content, not from the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def structure_name(request: Request) -> str:
    """What stands in where, as part of a file name: `low_rank`, `Linear-shuffle-conv2-low_rank`."""
    return file_name(request.label)


def budget_name(budget: Budget) -> str:
    """A budget as part of a file name: `24k`, `0.3M-mult-adds`, `ratio-0.1`."""
    if budget.metric in UNITS:
        return file_name(budget.label)
    return file_name(f"{budget.metric}-{budget.amount:g}")
