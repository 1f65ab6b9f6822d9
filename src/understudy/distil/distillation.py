"""Distillation: the student gives what the teacher gives, softened."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Hinton's: T² · KL(softmax(teacher / T) ‖ softmax(student / T)), a mean over the batch."""
    return temperature**2 * F.kl_div(
        F.log_softmax(student / temperature, dim=1),
        F.log_softmax(teacher / temperature, dim=1),
        reduction="batchmean",
        log_target=True,
    )
