"""What a network is trained to lower, by name; attention and distillation come on top of it."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Loss = Literal["cross_entropy", "mse"]


def target_loss(
    loss: Loss, output: Tensor, target: Tensor, *, label_smoothing: float = 0.0, summed: bool = False
) -> Tensor:
    """The mean over the samples of the distance to the targets, or the sum; that of a sample is a mean too.

    `mse` takes targets of the output's shape, or classes, which are then 1 against 0.
    """
    if loss == "cross_entropy":
        mean = F.cross_entropy(output, target, label_smoothing=label_smoothing)
    else:
        if not target.is_floating_point() and target.shape != output.shape:
            target = F.one_hot(target, output.shape[-1])
        if output.shape != target.shape:
            raise ValueError(
                f"the network gives {tuple(output.shape)}, but the targets are {tuple(target.shape)}"
            )
        mean = (output - target.to(output.dtype)).square().mean()
    return len(output) * mean if summed else mean
