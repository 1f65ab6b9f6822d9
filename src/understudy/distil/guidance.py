"""Self-guided training: dense companions that fade out (Wei et al. 2024, arXiv:2406.16450)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from understudy._util.guard import the_network
from understudy.layers.layer import Layer, stand_ins


class SelfGuidance:
    """A dense layer beside every stand-in of a student: out = ρ · dense(x) + (1 − ρ) · stand-in(x).

    The companions begin at the matrices of the stand-ins and share their biases; `weights` are theirs, to be
    trained with the student's parameters. Set `share`, which is ρ, before every step: `fading` gives one that
    falls from 1 to 0. Only modules in training mode are guided. `close` takes the companions away.

    >>> import torch, understudy as us
    >>> student = torch.nn.Sequential(torch.nn.Linear(64, 64))
    >>> us.substitute_(student, us.plan(student, "btt", knob=1), init="fresh") is student
    True
    >>> guidance = SelfGuidance(student)
    >>> optimiser = torch.optim.AdamW([*student.parameters(), *guidance.weights])
    >>> guidance.share = fading(step=10, steps=100)
    >>> guidance.close()
    """

    def __init__(self, student: nn.Module) -> None:
        the_network(student, "student", copied=True)
        self.share = 1.0
        self.weights = nn.ParameterList()
        self._hooks = [
            layer.register_forward_hook(self._beside(layer), with_kwargs=True)
            for _, layer in stand_ins(student)
        ]

    def _beside(self, layer: Layer) -> Callable[..., Tensor | None]:
        with torch.no_grad():
            companion = layer.merged()
        companion.weight.requires_grad_(True)
        companion.bias = layer.bias  # type: ignore[assignment]  # one bias, which both add
        self.weights.append(companion.weight)

        def blended(module: nn.Module, args: Any, kwargs: Any, out: Tensor) -> Tensor | None:
            if not module.training or self.share == 0:
                return None
            return torch.lerp(out, companion(*args, **kwargs).to(out.dtype), self.share)

        return blended

    def close(self) -> None:
        """Let the student run by itself."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def fading(step: int, steps: float) -> float:
    """The companions' share at a step: half a cosine from 1 to 0 over `steps`.

    >>> [round(fading(step, 4), 2) for step in range(6)]
    [1.0, 0.85, 0.5, 0.15, 0.0, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * step / steps)) if step < steps else 0.0
