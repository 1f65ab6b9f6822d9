"""What the tests of sweeps share: a tiny grid, an engine without processes, results without the clock."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pytest
import torch
from typing_extensions import Self

from understudy.experiments import Grid, Message, Task, make_grid, read_results, run_task, speed
from understudy.results import Result, Status

TOML = """
recipe = "demo"
networks = "wrn_10_1"

[settings]
epochs = 2
train_images = 128
batch_size = 16
checkpoint_seconds = 0.0

[[students]]
transforms = ["low_rank", "shuffle"]
ratio = 0.1
"""
TABLE: dict[str, Any] = {
    "recipe": "demo",
    "networks": "wrn_10_1",
    "settings": {"epochs": 2, "train_images": 128, "batch_size": 16, "checkpoint_seconds": 0.0},
    "students": [{"transforms": ["low_rank", "shuffle"], "ratio": 0.1}],
}
TEACHER, LOW_RANK, SHUFFLE = (
    "teacher-seed-0", "low_rank-ratio-0.1-at-crs-seed-0", "shuffle-ratio-0.1-at-crs-seed-0",
)  # fmt: skip


@contextmanager
def quickly() -> Iterator[None]:
    """On one thread, and with few turns of timing."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "_ROUNDS", 2)
        yield
    torch.set_num_threads(threads)


def tiny(**changes: Any) -> Grid:
    return make_grid("tiny", {**TABLE, **changes})


def without_clock(out: Path) -> dict[str, Result]:
    """The results by name, but for what a clock decides."""
    return {
        result.name: dataclasses.replace(
            result,
            speed=None,
            curve=tuple(dataclasses.replace(epoch, seconds=0.0) for epoch in result.curve),
        )
        for result in read_results(out)
    }


class InlineEngine:
    """Runs each task in this process, when it is waited for."""

    started: Literal["started", "queued"] = "started"
    slots = 2
    threads = 1

    def __init__(self, run: Callable[[Task], Status] = run_task) -> None:
        self.run = run
        self.tasks: list[Task] = []
        self.names: list[str] = []

    def start(self, task: Task) -> None:
        self.tasks.append(task)
        self.names.append(task.name)
        assert len(self.tasks) <= self.slots

    def wait(self) -> Message:
        task = self.tasks.pop(0)
        return Message(task.name, status=self.run(task))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tasks.clear()


def holders(path: Path) -> list[int]:
    """The processes, other than this one, that have a file open."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                links = [link.readlink() for link in (folder / "fd").iterdir()]
            except OSError:  # it has ended, or is another user's
                continue
            if path.resolve() in links:
                found.append(int(folder.name))
    return found
