"""The engine on this machine: a few worker processes that live as long as the sweep, and never longer."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Literal

import torch

from understudy._util.records import from_plain
from understudy.results import Status

from .engine import Message
from .task import Task

if TYPE_CHECKING:
    from typing_extensions import Self

_ATTEMPTS = 2  # of a task whose worker dies under it


@dataclasses.dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[str]
    listener: threading.Thread | None = None
    task: Task | None = None

    def bury(self) -> int:
        """Clear away a process that has ended; returns its exit code."""
        code = self.process.wait()
        if self.listener is not None:
            self.listener.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # a task that it never read
                    pipe.close()
        return code


class LocalEngine:
    """Runs tasks in N processes, which share the threads of torch.

    Where one dies (a segfault, out of memory), its task is tried once more.

    >>> from pathlib import Path
    >>> from understudy.experiments import LocalEngine
    >>> engine = LocalEngine(2, Path("workers.log"))  # for sweep(grid, out, engine=engine)
    >>> engine.slots, engine.started
    (2, 'started')
    """

    started: Literal["started", "queued"] = "started"

    def __init__(self, workers: int, log: Path) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers: at least 1 is needed")
        self.slots = workers
        self.threads = max(1, torch.get_num_threads() // workers)
        self._log_path = log
        self._log: IO[bytes] | None = None
        self._workers: list[_Worker] = []
        self._attempts: dict[str, int] = {}
        self._inbox: queue.Queue[tuple[_Worker, str | None]] = queue.Queue()

    def __enter__(self) -> Self:
        self._log = self._log_path.open("ab")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.kill()  # runs are made for it: a checkpoint is whole or not there
        for worker in self._workers:
            worker.bury()
        self._workers.clear()
        if self._log is not None:
            self._log.close()

    def start(self, task: Task) -> None:
        """Hand a task to a worker that is free, or to a new one."""
        worker = next((worker for worker in self._workers if worker.task is None), None) or self._hire(task)
        worker.task = task
        self._attempts[task.name] = self._attempts.get(task.name, 0) + 1
        assert worker.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has just died, which `wait` will hear
            worker.process.stdin.write(json.dumps(task.to_dict()) + "\n")
            worker.process.stdin.flush()

    def wait(self) -> Message:
        """The next message; a worker's death is one."""
        while True:
            worker, line = self._inbox.get()
            if line is None:
                message = self._replace(worker)
                if message is not None:
                    return message
                continue
            assert worker.task is not None
            content = json.loads(line)
            if "progress" in content:
                return Message(worker.task.name, content["progress"])
            name, worker.task = worker.task.name, None
            return Message(name, status=from_plain(Status, content["status"]))

    def _hire(self, task: Task) -> _Worker:
        process = subprocess.Popen(
            [sys.executable, "-m", "understudy.experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": str(task.threads)},
            start_new_session=True,  # Ctrl-C in the terminal is for the sweep, which then stops its workers
        )
        worker = _Worker(process)
        self._workers.append(worker)
        worker.listener = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        worker.listener.start()
        return worker

    def _listen(self, worker: _Worker) -> None:
        assert worker.process.stdout is not None
        for line in worker.process.stdout:
            self._inbox.put((worker, line))
        self._inbox.put((worker, None))

    def _replace(self, worker: _Worker) -> Message | None:
        """Try the task of a dead worker once more, from its checkpoint; then call it failed."""
        self._workers.remove(worker)
        code = worker.bury()
        task = worker.task
        if task is None:
            return None
        ended = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        if self._attempts[task.name] < _ATTEMPTS:
            self.start(task)
            return Message(task.name, f"its worker {ended}; going on in another")
        reason = f"the worker {ended}, {_ATTEMPTS} times; see {self._log_path.name}"
        return Message(task.name, status=Status("failed", reason))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
