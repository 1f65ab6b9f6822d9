"""A cell: one run of a grid, its name, and what it is, whatever it is called."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Literal

from understudy._util.files import digest
from understudy._util.quantities import parse_count
from understudy.train import Recipe

from .checks import GridError

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
        counts = {key: getattr(self.recipe, key) for key in ("params", "mult_adds")}
        recipe = self.recipe.replaced({key: parse_count(text) for key, text in counts.items() if text})
        return recipe.identity({"teacher": self.teacher, "unreachable": self.unreachable})


def short_hash(content: object) -> str:
    """Ten characters that follow from the content, not from the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def teacher_identity(source: str) -> str:
    """What an existing teacher is: the contents of its file, or the name of a published network."""
    path = Path(source)
    if path.is_dir():
        path = path / "model.safetensors"
    if path.is_file():
        return digest(path).removeprefix("sha256:")[:10]
    if ":" in source:
        return source
    raise GridError(f"no teacher {source!r}: neither a finished run, nor a file of weights, nor timm:NAME")


def file_name(value: object) -> str:
    """A value as part of a file name: `"2.4 M"` → `2.4M`, `timm:x` → `timm-x`."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    kept = "".join(character for character in text if character not in " _,") if text[:1].isdigit() else text
    return "".join(character if character.isalnum() or character in "._-" else "-" for character in kept)
