"""What a network is at one moment, to see that looking at it left it alone."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """All that looking at a network must leave alone, the three global random states included."""

    modules: dict[str, int]
    tensors: dict[str, int]
    values: dict[str, bytes]
    training: dict[str, bool]
    grads: dict[str, bool]
    hooks: dict[str, list[int]]
    random: tuple[bytes, object, str]


def snapshot(model: nn.Module) -> Snapshot:
    """What `model` is now."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return Snapshot(
        modules={path: id(module) for path, module in model.named_modules(remove_duplicate=False)},
        tensors={name: id(tensor) for name, tensor in tensors},
        values={
            name: b""
            if t.is_meta
            else t.detach().clone().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            for name, t in tensors
        },
        training={path: module.training for path, module in model.named_modules()},
        grads={name: parameter.requires_grad for name, parameter in model.named_parameters()},
        hooks={
            path: [id(hook) for kind in kinds for hook in vars(module)[kind].values()]
            for path, module in model.named_modules()
        },
        random=(torch.get_rng_state().numpy().tobytes(), random.getstate(), repr(np.random.get_state())),
    )
