"""One cell as work to do: what an engine hands to a process, and what comes back."""

from __future__ import annotations

import dataclasses
import json
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from understudy._util.provenance import this_machine
from understudy._util.records import write_record
from understudy.planning.plan import Plan
from understudy.results import Status
from understudy.train import DivergedError, Recipe, Run, RunError, train
from understudy.train.answers import Keep
from understudy.train.run import RunInUseError

MACHINE, MACHINE_FORMAT = "machine.json", 1
_PATIENCE_SECONDS = 15.0  # the helpers of a killed process may hold its run for some seconds more


@dataclasses.dataclass(frozen=True)
class Task:
    """A recipe to train into a folder, with the plan that was made for it; None for a dense network.

    >>> from understudy.experiments import Task
    >>> from understudy.train import Recipe
    >>> task = Task("teacher", Recipe(epochs=1), folder="run", data_folder=None, threads=1)
    >>> Task.from_dict(task.to_dict()) == task  # as it goes to another process
    True
    """

    name: str
    recipe: Recipe
    folder: str
    data_folder: str | None
    threads: int
    plan: Plan | None = None
    trust: bool = False  # functions that the folder of a teacher names may be called
    answers: str | None = None  # a folder where the teacher's answers are kept for other tasks
    answers_limit: int = 0  # its bytes

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        plan = None if self.plan is None else json.loads(self.plan.to_json())
        return {**vars(self), "recipe": self.recipe.to_dict(), "plan": plan}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Task:
        """The inverse of `to_dict`."""
        plan = None if content["plan"] is None else Plan.from_json(json.dumps(content["plan"]))
        return cls(**{**content, "recipe": Recipe.from_dict(content["recipe"]), "plan": plan})


def run_task(task: Task, report: Callable[[str], None] = lambda _: None) -> Status:
    """Train, or go on, or find that there is nothing left to do; an error becomes a status.

    >>> import torch
    >>> from understudy.experiments import Task, run_task
    >>> from understudy.train import Recipe
    >>> recipe = Recipe(network="wrn_10_1", epochs=1, train_images=32, batch_size=32)
    >>> run_task(Task("teacher", recipe, "run", None, threads=torch.get_num_threads()))
    Status(state='finished', reason='')
    """
    torch.set_num_threads(task.threads)
    folder = Path(task.folder)
    try:
        left = Run(folder, task.recipe).stands()
        if left.status == "diverged":  # it would again
            return Status("diverged", one_line(left.reason))
    except RunError as error:
        report(f"passed over: {error}")
    try:
        _train(task, report)
        write_record(folder / MACHINE, this_machine(), MACHINE_FORMAT)
    except DivergedError as error:
        return Status("diverged", one_line(str(error)))
    except Exception as error:
        traceback.print_exc()  # to the log; the reason is for the reader of the results
        return Status("failed", one_line(f"{type(error).__name__}: {error}"))
    return Status("finished")


def _train(task: Task, report: Callable[[str], None]) -> None:
    """Train as soon as the folder is free."""
    data_folder = None if task.data_folder is None else Path(task.data_folder)
    keep = None if task.answers is None else Keep(Path(task.answers), task.answers_limit)
    given_up = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            train(
                task.recipe,
                Path(task.folder),
                plan=task.plan,
                data_folder=data_folder,
                trust=task.trust,
                keep=keep,
                report=report,
            )
            return
        except RunInUseError:
            if time.monotonic() > given_up:
                raise
            time.sleep(0.2)


def one_line(text: str) -> str:
    """A message without line breaks, cut where it becomes too long to read."""
    joined = " ".join(text.split())
    return joined if len(joined) <= 500 else f"{joined[:499]}…"
