"""Which cells of a sweep ask one teacher the same, and where its answers are kept meanwhile."""

from __future__ import annotations

import collections
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from understudy.train import Recipe

from .cell import Cell

_FOLDER = "answers"
DEFAULT_LIMIT = 4 * 10**9  # bytes: three runs of 10 epochs over CIFAR, three taps each


def sharing(cells: Sequence[Cell]) -> frozenset[str]:
    """The names of the cells whose teacher is asked the same by another cell.

    It depends on the grid alone, not on what is done already: a run that goes on sees the numbers it saw.
    """
    asked: dict[object, list[str]] = collections.defaultdict(list)
    for cell in cells:
        if cell.recipe.teacher and (cell.recipe.attention or cell.recipe.distillation):
            asked[_question(cell.recipe)].append(cell.name)
    return frozenset(name for names in asked.values() if len(names) > 1 for name in names)


@contextmanager
def answers_folder(out: Path) -> Iterator[Path]:
    """A folder for answers, for a sweep that has its own folder to itself; at a good end it is removed."""
    folder = out / _FOLDER
    for leftover in folder.glob("*/.*"):
        leftover.unlink()  # half written by a sweep that was killed
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _question(recipe: Recipe) -> object:
    """What decides the batches, and what of its teacher's answers is looked at."""
    return (
        recipe.teacher, recipe.data, recipe.train_images, recipe.mean, recipe.std, recipe.seed,
        recipe.batch_size, recipe.crop_padding, recipe.flip, recipe.cutout, recipe.resized_crop,
        recipe.taps, recipe.attention > 0, recipe.distillation > 0, recipe.precision,
    )  # fmt: skip
