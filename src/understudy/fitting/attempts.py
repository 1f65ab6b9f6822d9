"""Students that are tried on inputs held back from the fit, and the one that is kept."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from understudy.layers.dense import dense_map
from understudy.planning.plan import Plan

from .calibration import Calibration
from .fit import dense_matrix, fit_matrix_, times
from .inputs import Batch, DataError, OutputOf
from .levels import Level, find_level, last_layer
from .running import run
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
        self.last = last_layer(original, batches[0], output_of)
        if not all(bool(wanted.isfinite().all()) for wanted in self.wanted):
            raise DataError("the original's outputs hold NaN or infinity on inputs that are held back")
        self.size = sum(batch.size for batch in batches)
        self.spread = _spread(self.wanted) / self.size  # ‖z − z̄‖² of a sample; 0 where all outputs are
        self._best: nn.Module | None = None
        self._level: Level | None = None
        self.error = float("inf")
        self.steps: list[Step] = []

    @property
    def best(self) -> nn.Module:
        """The nearest of those that were considered, as it was considered."""
        assert self._best is not None
        return self._best

    @property
    def levelled(self) -> nn.Module:
        """The same with its last layer levelled, where that helps."""
        return self.best if self._level is None else self._level.applied(self.best)

    def consider(self, name: str, student: nn.Module) -> None:
        """Keep a student, its last layer levelled where that helps, if it is nearer than all before it."""
        as_it_is, error, level = self._judged(student)
        if level is not None and error < self.error and self.error_of(level.applied(student)) >= as_it_is:
            self.last = None  # it does something else than it seems to, or not in this precision
            error, level = as_it_is, None
        kept = self._best is None or error < self.error
        self.note(name, error, kept=kept)
        if kept:
            self._best, self._level, self.error = student, level, error

    def note(self, name: str, error: float, *, kept: bool) -> None:
        """Remember what was tried."""
        self.steps.append(Step(name, error, kept))

    def error_of(self, student: nn.Module) -> float:
        """‖z − ẑ‖² over ‖z − z̄‖², of a student as it is."""
        return self._error(self._lost([self._outputs(student, batch) for batch in self.batches]))

    def judged(self, student: nn.Module) -> tuple[float, Level | None]:
        """The same, with the level of its last layer that makes it less, if there is one."""
        return self._judged(student)[1:]

    def _judged(self, student: nn.Module) -> tuple[float, float, Level | None]:
        """The error of a student as it is, and as `judged` says."""
        made = [self._outputs(student, batch) for batch in self.batches]
        error = self._error(self._lost(made))
        layer = None if self.last is None else dense_map(student.get_submodule(self.last))
        if self.last is None or layer is None:
            return error, error, None
        found = find_level(self.last, layer, self.batches, self.wanted, made)
        levelled = error if found is None else self._error(found[1])
        return (error, levelled, found[0]) if found is not None and levelled < error else (error, error, None)

    def _lost(self, made: list[Tensor]) -> float:
        pairs = zip(made, self.wanted, strict=True)
        return sum(float((own - wanted).square().sum()) for own, wanted in pairs)

    def _error(self, lost: float) -> float:
        lost /= self.size
        error = lost / self.spread if self.spread else lost
        return error if error == error else float("inf")  # NaN is as far as can be

    @torch.no_grad()
    def _outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        return run(model.eval(), batch, self.output_of).double()


def _spread(outputs: list[Tensor]) -> float:
    """Σ ‖z − z̄‖² with z̄ the mean over the samples, where they do not differ over all axes but the last.

    Where that does not differ either, as one sample with one vector, it is Σ ‖z‖².
    """
    vectors = [wanted.reshape(-1, wanted.shape[-1]) for wanted in outputs]
    return (
        _about_the_mean(outputs)
        or _about_the_mean(vectors)
        or sum(float(wanted.square().sum()) for wanted in outputs)
    )


def _about_the_mean(outputs: list[Tensor]) -> float:
    """Over all batches; outputs may be of several lengths: then each batch has a mean of its own."""
    if len({wanted.shape[1:] for wanted in outputs}) == 1:
        outputs = [torch.cat(outputs)]
    return sum(float((wanted - wanted.mean(0)).square().sum()) for wanted in outputs)


def fitted(
    student: nn.Module,
    original: nn.Module,
    plan: Plan,
    known: Calibration,
    shifts: Mapping[str, Shift],
) -> nn.Module:
    """A copy with every stand-in fitted by itself, in the metric of what its layer saw, or plainly."""
    made = copy.deepcopy(student)
    for layer in plan:
        if layer.spec is None:
            continue
        dense = original.get_submodule(layer.path)
        weight = dense_matrix(dense)
        seen = known.layers.get(layer.path)
        if seen is None:
            fit_matrix_(made.get_submodule(layer.path), weight, None)
            continue
        is_centred = shifts[layer.path].exists
        metrics = known.metrics(layer.path, is_centred=is_centred)
        matrix = fit_matrix_(made.get_submodule(layer.path), weight, metrics)
        if is_centred:
            bias = dense._parameters.get("bias")
            constant = times(weight - matrix, seen.mean) + (0 if bias is None else bias.detach().double())
            shifts[layer.path].set_(made, original, layer.path, constant)
    return made
