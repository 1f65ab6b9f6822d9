"""What a network is trained to lower, by name; attention and distillation come on top of it."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Loss = Literal["cross_entropy", "mse"]


def target_loss(
    loss: Loss, output: Tensor, target: Tensor, *, label_smoothing: float = 0.0, summed: bool = False
) -> Tensor:
    """The mean over the samples of the distance to the targets, or the sum.

    `mse` takes targets of the output's shape, or classes, which are then 1 against 0.
    """
    if loss == "cross_entropy":
        return F.cross_entropy(
            output, target, label_smoothing=label_smoothing, reduction="sum" if summed else "mean"
        )
    if not target.is_floating_point():
        target = F.one_hot(target, output.shape[-1])
    if output.shape != target.shape:
        raise ValueError(
            f"the network gives {tuple(output.shape)}, but the targets are {tuple(target.shape)}"
        )
    squares = (output - target.to(output.dtype)).square().flatten(1).mean(dim=1)  # (B,)
    return squares.sum() if summed else squares.mean()
