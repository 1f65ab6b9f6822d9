"""One cell as work to do: what an engine hands to a process, and what comes back."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from understudy._util.files import whole_file
from understudy.train import DivergedError, Recipe, Run, train
from understudy.train.run import RunInUseError

_PATIENCE_SECONDS = 15.0  # the helpers of a killed process may hold its run for some seconds more


@dataclasses.dataclass(frozen=True)
class Task:
    """A recipe to train into a folder."""

    name: str
    recipe: Recipe
    folder: str
    data_folder: str | None
    threads: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**vars(self), "recipe": self.recipe.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Task:
        """The inverse of `to_dict`."""
        return cls(**{**content, "recipe": Recipe.from_dict(content["recipe"])})


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a task ended."""

    status: Literal["finished", "diverged", "failed"]
    reason: str = ""


def run_task(task: Task, report: Callable[[str], None] = lambda _: None) -> Outcome:
    """Train, or go on, or find that there is nothing left to do; an error becomes an outcome."""
    torch.set_num_threads(task.threads)
    folder = Path(task.folder)
    status = Run(folder, task.recipe).read_json("status.json")
    if status.get("status") == "diverged":  # it would again
        return Outcome("diverged", one_line(status["reason"]))
    try:
        _train(task, report)
        with whole_file(folder / "machine.json") as temporary:
            temporary.write_text(json.dumps(machine() | {"threads": task.threads}) + "\n", encoding="utf-8")
    except DivergedError as error:
        return Outcome("diverged", one_line(str(error)))
    except Exception as error:
        traceback.print_exc()  # to the log; the reason is for the reader of the results
        return Outcome("failed", one_line(f"{type(error).__name__}: {error}"))
    return Outcome("finished")


def _train(task: Task, report: Callable[[str], None]) -> None:
    """Train as soon as the folder is free."""
    data_folder = None if task.data_folder is None else Path(task.data_folder)
    given_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            train(task.recipe, Path(task.folder), data_folder=data_folder, report=report)
            return
        except RunInUseError:
            if time.monotonic() > given_up:
                raise
            time.sleep(0.2)


def one_line(text: str) -> str:
    """A message without line breaks, cut where it becomes too long to read."""
    joined = " ".join(text.split())
    return joined if len(joined) <= 500 else f"{joined[:499]}…"


def machine() -> dict[str, Any]:
    """Where this process runs."""
    return {
        "platform": platform.machine(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


@cache
def commit() -> str | None:
    """The commit of this package, where it runs from its own repository."""
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.CalledProcessError):  # no git, or not its own repository
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
