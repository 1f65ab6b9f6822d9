"""The settings of a run on disk, config.json: its recipe, what its teacher and plan are, its identity."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from understudy import __version__
from understudy._util.records import InputError, Json, RecordError, VersionError, read_record, write_record

from .recipe import FORMAT, Recipe

CONFIG = "config.json"


class RunError(InputError):
    """A folder that is not what a run needs.

    >>> from understudy.train import Run
    >>> Run.read("nowhere")
    Traceback (most recent call last):
    ...
    understudy.train.config.RunError: nowhere holds no run (no config.json)
    """


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a run's teacher and plan are, wherever they lie; empty where it has none."""

    teacher: str = ""
    plan: str = ""


@dataclasses.dataclass(frozen=True)
class _Config:
    """What the file holds."""

    identity: str
    teacher: str
    plan: str
    recipe: Mapping[str, Json]


def write_config(folder: Path, recipe: Recipe, inputs: Inputs, identity: str) -> None:
    """Write the settings of a run whole."""
    record = _Config(identity, inputs.teacher, inputs.plan, recipe.to_dict())
    write_record(folder / CONFIG, record, FORMAT)


def read_config(folder: Path) -> tuple[Recipe, Inputs]:
    """The settings of a run; a RunError says what is wrong with any other folder."""
    path = folder / CONFIG
    try:
        held = read_record(_Config, path, FORMAT)
        return Recipe.from_dict(held.recipe), Inputs(held.teacher, held.plan)
    except FileNotFoundError:
        raise RunError(f"{folder} holds no run (no {CONFIG})") from None
    except VersionError as error:
        raise RunError(f"{error} (it is {__version__}): train it again in another folder") from error
    except RecordError as error:
        told = str(error).removeprefix(f"{path}: ")
        raise RunError(f"{path} is not the settings of a run: {told}") from error
    except ValueError as error:
        raise RunError(f"{path} is not the settings of a run: {error}") from error
