"""What runs tasks: some at a time, each told when it moves and how it ends.

Any object with these members is an engine; `sweep(engine=…)` takes it.
"""

from __future__ import annotations

import dataclasses
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol

from understudy.results import Status

from .task import Task

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclasses.dataclass(frozen=True)
class Message:
    """Something that a task did: a line of progress or, at its end, how it stands.

    >>> from understudy.experiments import Message
    >>> from understudy.results import Status
    >>> Message("teacher-seed-0", "epoch 1/8").status is None  # it goes on
    True
    >>> Message("teacher-seed-0", status=Status("failed", "out of memory")).status.reason
    'out of memory'
    """

    task: str
    text: str = ""
    status: Status | None = None


class Engine(Protocol):
    """Starts tasks and waits for what they say.

    >>> import contextlib, torch
    >>> from pathlib import Path
    >>> from understudy.experiments import Message, make_grid, run_task, sweep
    >>> class Here(contextlib.nullcontext):  # one task after another, in this process
    ...     slots, threads, started = 1, torch.get_num_threads(), "started"
    ...     def start(self, task):
    ...         self.task = task
    ...     def wait(self):
    ...         return Message(self.task.name, status=run_task(self.task))
    >>> table = {"recipe": "demo", "settings": {"epochs": 1, "train_images": 32, "batch_size": 32}}
    >>> table |= {"teacher": {"existing": "timm:resnet18"}, "baselines": {"networks": "wrn_10_1"}}
    >>> sweep(make_grid("one", table), Path("sweep"), engine=Here())[0].status.state
    'finished'
    """

    slots: int  # tasks that may be started at a time
    threads: int  # of torch, for each task
    started: Literal["started", "queued"]  # what starting means: at once, or when others decide

    def start(self, task: Task) -> None:
        """Begin a task; only while fewer than `slots` run."""

    def wait(self) -> Message:
        """The next message of any task; blocks until there is one."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything that still runs, at once."""
