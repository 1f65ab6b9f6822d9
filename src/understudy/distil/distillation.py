"""Distillation: the student gives what the teacher gives, softened or as it is."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

Distance = Literal["softened", "outputs"]


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Hinton's: T² · KL(softmax(teacher / T) ‖ softmax(student / T)), a mean over batch and pixels."""
    if student.dim() < 2 or student.dim() == 3:
        raise ValueError(
            f"outputs of shape {tuple(student.shape)} do not say which axis is that of the classes, as "
            '(samples, classes) does: compare them as they are, distance="outputs"'
        )
    divergence = F.kl_div(
        F.log_softmax(student / temperature, dim=1),
        F.log_softmax(teacher / temperature, dim=1),
        reduction="sum",
        log_target=True,
    )
    return temperature**2 * divergence * student.shape[1] / student.numel()


def output_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """‖z − ẑ‖² over ‖z − z̄‖²: the share of the teacher's outputs that is lost, whatever they mean.

    z̄ is the mean over the batch; outputs that do not differ at all count as they are.
    """
    if student.shape != teacher.shape:
        raise ValueError(f"the student gives {tuple(student.shape)}, the teacher {tuple(teacher.shape)}")
    spread = (teacher - teacher.mean(0)).square().sum()
    return (student - teacher).square().sum() / (spread if spread > 0 else 1.0)
