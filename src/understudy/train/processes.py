"""One process or many: what torchrun says, and the little that ranks must agree on."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Sequence

import torch
import torch.distributed as dist


@dataclasses.dataclass(frozen=True)
class Processes:
    """This process among all that train together."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Only the first process writes."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Each number summed over all processes."""
        if self.world_size == 1:
            return list(values)
        summed = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(summed)
        return [float(value) for value in summed.tolist()]


def join(device: str | None = None) -> Processes:
    """Join the processes that torchrun started, or be the only one."""
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if device is None:
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        raise ValueError(f"no device {device!r}: {error}") from error
    if chosen.type == "meta":
        raise ValueError(f"device {device!r} holds no values: nothing can be computed on it")
    if world_size > 1 and not dist.is_initialized():
        # What trains in parallel imports it. Defaults of its functions are the group, where there is one by
        # then: nothing ends the group's threads after that, and the interpreter may abort as it ends.
        importlib.import_module("torch._dynamo")
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return Processes(rank, world_size, chosen)


def leave() -> None:
    """Leave the processes that were joined."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
