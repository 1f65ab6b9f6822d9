"""A checkpoint: all that a run needs to go on, in one file that names its run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from understudy.students.file import HEADER_KEY, write_tensors


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and all else that a run needs to go on as if it had never stopped."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]


class CheckpointError(ValueError):
    """A file that is damaged, or of another run."""


def write_checkpoint(path: Path, checkpoint: Checkpoint, identity: str) -> None:
    """Write a checkpoint of this run whole."""
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in checkpoint.tensors.items()}
    write_tensors(path, tensors, json.dumps({"identity": identity, **checkpoint.state}))


def read_checkpoint(path: Path, identity: str, device: torch.device) -> Checkpoint:
    """A checkpoint of this run; a CheckpointError says why it is none."""
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            state = json.loads((file.metadata() or {}).get(HEADER_KEY, "{}"))
            if not isinstance(state, dict) or state.get("identity") != identity:
                raise CheckpointError(f"{path.name} is of another run")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path.name} is damaged ({error})") from error
    return Checkpoint(tensors, state)
