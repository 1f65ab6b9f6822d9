"""Whether a step of training fits into memory without computing anything twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from understudy._util.meta import weightless
from understudy.counting.copies import copy_to_run
from understudy.distil.frozen import call
from understudy.layers import recompute_nothing_, stand_ins

# A step may keep one part in so many of what is free: gradients, a teacher, other runs are there too.
_SHARE = 4
_SYSTEM = Path("/")


def fits(network: nn.Module, x: Any, device: torch.device) -> bool:
    """Whether what a forward pass keeps for its backward pass is little beside the memory that is free.

    Where either is not known, it does not.
    """
    kept, free = kept_bytes(network, x), free_bytes(device)
    return kept is not None and free is not None and kept * _SHARE <= free


def kept_bytes(network: nn.Module, x: Any) -> int | None:
    """What one forward pass in training keeps beside its weights, if no stand-in computes anything again.

    A copy without weights tells; None where the network cannot run as one.
    """
    copied = copy_to_run(network, weightless).train()
    recompute_nothing_(layer for _, layer in stand_ins(copied))
    weights = {_storage(tensor) for tensor in (*copied.parameters(), *copied.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[_storage(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    try:
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = call(copied, tree_map_only(Tensor, weightless, x))
    except Exception:  # the network of somebody: whatever it does with values
        return None
    total = sum(size for storage, size in kept.items() if storage not in weights)
    del output  # until here it held what was kept, so that no two had one place
    return total


def _storage(tensor: Tensor) -> int:
    place: int = tensor.untyped_storage()._cdata
    return place


def free_bytes(device: torch.device) -> int | None:
    """The memory that is left on a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    try:
        lines = (_SYSTEM / "proc/meminfo").read_text(encoding="ascii").splitlines()
        free = 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None
    group = _SYSTEM / "sys/fs/cgroup"  # of a container: its own limit
    try:
        limit, used = (
            int((group / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current")
        )
    except (OSError, ValueError):  # none, or "max"
        return free
    return max(0, min(free, limit - used))
