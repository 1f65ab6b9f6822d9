"""A cell: one run of a grid, its name, and what it is, whatever it is called."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cached_property
from typing import Literal

from understudy.train import Recipe

Role = Literal["teacher", "student", "baseline"]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of a grid. In its recipe, `teacher` is the name of the teacher's cell."""

    name: str
    role: Role
    recipe: Recipe
    budget: str = ""  # as asked, such as "24k params"
    teacher: str = ""  # id of the teacher's cell, or of what stands for it
    unreachable: str = ""  # why there is no such network, where there is none

    @cached_property
    def id(self) -> str:
        """A hash of all that decides the outcome: not the name, and the teacher by what it is."""
        identity = self.recipe.identity(teacher=self.teacher)
        return short_hash([identity, self.unreachable]) if self.unreachable else identity


def short_hash(content: object) -> str:
    """Ten characters that follow from the content, not from the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def file_name(value: object) -> str:
    """A value as part of a file name: `"2.4 M"` → `2.4M`, `timm:x` → `timm-x`."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    kept = "".join(character for character in text if character not in " _,") if text[:1].isdigit() else text
    return "".join(character if character.isalnum() or character in "._-" else "-" for character in kept)
