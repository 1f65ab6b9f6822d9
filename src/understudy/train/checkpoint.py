"""A checkpoint: all that a run needs to go on, in one file that names its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from understudy._util.records import InputError, Json, RecordError, from_plain, to_plain
from understudy.students.tensors import FileError, read_tensors, write_tensors

_KIND, _VERSION = "checkpoint", 1
_MOST_STEPS = 1 << 40


@dataclasses.dataclass
class Progress:
    """Where a run stands; kept in every checkpoint."""

    step: int = 0  # of the whole run
    epoch: int = 0
    batch: int = 0  # of the epoch
    loss_sum: float = 0.0  # over the epoch so far and all processes
    right: int = 0
    labelled: int = 0  # of the samples seen, those whose targets are classes
    seen: int = 0

    def __post_init__(self) -> None:
        counts = (self.epoch, self.batch, self.right, self.labelled, self.seen)
        if not all(0 <= count <= _MOST_STEPS for count in (self.step, *counts)):
            raise ValueError(f"step {self.step}, or what was counted by then, is not in 0..{_MOST_STEPS}")
        if self.batch > self.step or not self.right <= self.labelled <= self.seen:
            raise ValueError(f"what was counted by step {self.step} does not fit together")


@dataclasses.dataclass(frozen=True)
class State:
    """Where a run stands, and what its moving parts remember beside tensors."""

    progress: Progress
    scaler: Mapping[str, Json]
    optimiser: Mapping[str, Json]
    guide_optimiser: Mapping[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and all else that a run needs to go on as if it had never stopped."""

    tensors: dict[str, Tensor]
    state: State


@dataclasses.dataclass(frozen=True)
class _Header:
    """What a checkpoint says beside its tensors."""

    kind: str
    version: int
    identity: str
    state: State


class CheckpointError(InputError):
    """A file that is damaged, or of another run."""


def write_checkpoint(path: Path, checkpoint: Checkpoint, identity: str) -> None:
    """Write a checkpoint of this run whole."""
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in checkpoint.tensors.items()}
    write_tensors(path, tensors, to_plain(_Header(_KIND, _VERSION, identity, checkpoint.state)))


def read_checkpoint(path: Path, identity: str, device: torch.device) -> Checkpoint:
    """A checkpoint of this run; a CheckpointError says why it is none."""
    try:
        file = read_tensors(path, _VERSION, device=str(device), allow_nan=True)
        header = from_plain(_Header, file.header or {})
    except (FileError, RecordError, OSError) as error:
        raise CheckpointError(f"{path.name} is damaged ({error})") from error
    if header.kind != _KIND:
        raise CheckpointError(f"{path.name} is damaged (it is a {header.kind})")
    if header.identity != identity:
        raise CheckpointError(f"{path.name} is of another run")
    return Checkpoint(file.tensors, header.state)
