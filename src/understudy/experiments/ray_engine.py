"""The engine on a Ray cluster: the same tasks as Ray tasks.

Every machine of the cluster must find the sweep's folder and the data under the same path.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import torch

from understudy._util.records import from_plain, to_plain
from understudy.results import Status

from .engine import Message
from .task import Task, run_task

if TYPE_CHECKING:
    from typing_extensions import Self

_RETRIES = 1  # of a task whose process dies under it


class RayEngine:
    """Queues every task with Ray, which finds it a place; one whose process dies is retried once.

    The cluster is the one that RAY_ADDRESS names; without it, Ray is started on this machine with a place for
    each of `workers` tasks, which share the threads of torch. A task asks Ray for as many CPUs as it has
    threads: on a cluster for one, whatever `workers` says. `gpus_per_cell` may be a fraction; by default it
    is 1 where the cluster has GPUs.

    >>> from understudy.experiments import RayEngine
    >>> engine = RayEngine(4, gpus_per_cell=0.5)  # for sweep(grid, out, engine=engine)
    >>> engine.started, engine.gpus_per_cell
    ('queued', 0.5)
    """

    started: Literal["started", "queued"] = "queued"
    slots = sys.maxsize  # Ray has its own queue

    def __init__(self, workers: int, gpus_per_cell: float | None = None) -> None:
        if workers < 1:
            raise ValueError(f"{workers} workers: at least 1 is needed")
        if gpus_per_cell is not None and gpus_per_cell < 0:
            raise ValueError(f"{gpus_per_cell} GPUs for each cell: 0 or more")
        self.workers = workers
        self.gpus_per_cell = gpus_per_cell
        self.address = os.environ.get("RAY_ADDRESS", "local")
        self.threads = max(1, torch.get_num_threads() // workers) if self.address == "local" else 1
        self._ray = _import_ray()
        self._remote: Any = None
        self._names: dict[Any, str] = {}

    def __enter__(self) -> Self:
        places = {"num_cpus": self.workers * self.threads, "include_dashboard": False}
        own = places if self.address == "local" else {}
        self._ray.init(address=self.address, log_to_driver=False, logging_level="error", **own)
        gpus = self.gpus_per_cell
        if gpus is None:
            gpus = 1.0 if self._ray.cluster_resources().get("GPU", 0) else 0.0
        self._remote = self._ray.remote(num_cpus=self.threads, num_gpus=gpus, max_retries=_RETRIES)(_run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ray.shutdown()

    def start(self, task: Task) -> None:
        """Give a task to Ray."""
        self._names[self._remote.remote(task.to_dict())] = task.name

    def wait(self) -> Message:
        """The next task that has ended."""
        [done], _ = self._ray.wait(list(self._names), num_returns=1)
        name = self._names.pop(done)
        try:
            return Message(name, status=from_plain(Status, self._ray.get(done)))
        except self._ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
            return Message(name, status=Status("failed", reason))


def _run(task: dict[str, Any]) -> dict[str, Any]:
    """What runs in Ray's process."""
    return dict(to_plain(run_task(Task.from_dict(task))))


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise ImportError(
            f"the engine 'ray' needs ray, which cannot be imported ({error}); "
            "pip install 'understudy[ray]' brings it"
        ) from error
    return ray
