"""Students that are tried on inputs held back from the fit, and the one that is kept."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from understudy.planning.plan import Plan

from .calibrate import run
from .calibration import Calibration
from .fit import dense_matrix, fit_matrix_
from .inputs import Batch, OutputOf
from .shifts import Shift


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing that was tried, the relative error of the outputs with it, and whether it was kept."""

    name: str
    error: float
    kept: bool


class Attempts:
    """Students that were tried, and the one whose outputs are nearest to the original's."""

    def __init__(self, original: nn.Module, batches: list[Batch], output_of: OutputOf | None) -> None:
        self.batches, self.output_of = batches, output_of
        self.wanted = [self._outputs(original, batch) for batch in batches]
        squares = [float((wanted - wanted.mean(0)).square().sum()) for wanted in self.wanted]
        self.spread = sum(squares) / sum(batch.size for batch in batches)  # ‖z − z̄‖² of a sample
        self.best: nn.Module = original
        self.error = float("inf")
        self.steps: list[Step] = []

    def consider(self, name: str, student: nn.Module) -> None:
        """Keep a student if it is nearer than all before it."""
        error = self.error_of(student)
        kept = error < self.error
        self.note(name, error, kept=kept)
        if kept:
            self.best, self.error = student, error

    def note(self, name: str, error: float, *, kept: bool) -> None:
        """Remember what was tried."""
        self.steps.append(Step(name, error, kept))

    def error_of(self, student: nn.Module) -> float:
        """‖z − ẑ‖² over ‖z − z̄‖²."""
        lost = 0.0
        for batch, wanted in zip(self.batches, self.wanted, strict=True):
            lost += float((self._outputs(student, batch) - wanted).square().sum())
        lost /= sum(batch.size for batch in self.batches)
        error = lost / self.spread if self.spread else lost
        return error if error == error else float("inf")  # NaN is as far as can be

    @torch.no_grad()
    def _outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return run(model.eval(), batch, self.output_of).double()


def fitted(
    student: nn.Module, original: nn.Module, plan: Plan, known: Calibration, shifts: Mapping[str, Shift]
) -> nn.Module:
    """A copy with every stand-in fitted by itself, in the metric of what its layer saw."""
    made = copy.deepcopy(student)
    for layer in plan:
        seen = known.layers.get(layer.path)
        if layer.spec is None or seen is None:
            continue
        dense = original.get_submodule(layer.path)
        weight = dense_matrix(dense)
        is_centred = shifts[layer.path].exists
        metric = known.metric(layer.path, is_centred=is_centred)
        matrix = fit_matrix_(made.get_submodule(layer.path), weight, metric)
        if is_centred:
            bias = dense._parameters.get("bias")
            constant = (weight - matrix) @ seen.mean + (0 if bias is None else bias.detach().double())
            shifts[layer.path].set_(made, original, layer.path, constant)
    return made
