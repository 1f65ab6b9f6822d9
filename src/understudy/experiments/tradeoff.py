"""The trade-off curve of a trained network: one calibration, a student for every transform and budget."""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from understudy._util.quantities import format_shape
from understudy.compressions import LayerShare, Looked, Recovery, Skipped, Student, Tried
from understudy.fitting.attempts import Attempts
from understudy.fitting.calibrate import SAMPLES, calibrate
from understudy.fitting.calibration import Calibration
from understudy.fitting.compress import Compression, compression
from understudy.fitting.fit import dense_matrix
from understudy.fitting.inputs import OutputOf, first_sample, held_back, read_batches
from understudy.fitting.running import Watch
from understudy.layers import check_plain
from understudy.layers.opening import opened
from understudy.planning.budget import Budget
from understudy.planning.plan import Plan
from understudy.planning.request import Spatial, TransformChoice
from understudy.planning.sites import Include, sites
from understudy.students.substitute import merge
from understudy.transforms import list_transforms

from .quality import Yardstick, footprint, latency


@dataclasses.dataclass(frozen=True)
class Made:
    """A student that was made: the network itself, its plan, and all that is known of it."""

    network: nn.Module
    plan: Plan
    record: Student


class Tradeoff:
    """Makes students of one trained network, which is looked at once and not changed.

    `data` are inputs to look at, `test` others to measure with, of which labels count where they have any;
    the other settings are as for `compression`, and for `Yardstick`. Students are in evaluation mode.

    >>> import torch, understudy as us
    >>> from torch import nn
    >>> from understudy.experiments import Tradeoff
    >>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    >>> curve = Tradeoff(model, data=[torch.randn(64, 8)], test=[torch.randn(16, 8)])
    >>> for made in curve.students(["low_rank"], [us.Budget.of(ratio=0.5)]):
    ...     print(made.record.name, made.record.costs.params <= 0.5 * curve.costs.params)
    low_rank-50 True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        data: Iterable[Any],
        test: Iterable[Any],
        labels: bool = True,
        classes: int | None = None,
        samples: int = SAMPLES,
        test_samples: int | None = None,
        include: Include | None = None,
        exclude: Sequence[str] | None = None,
        spatial: Spatial = "auto",
        options: Mapping[str, str] | None = None,
        output_of: OutputOf | None = None,
        quick: bool = False,
        seed: int = 0,
        watch: Watch = lambda *_: None,
    ) -> None:
        check_plain(model)
        self.model, self.watch = copy.deepcopy(model).eval(), watch
        self.batches = read_batches(data, samples)
        self.example = first_sample(self.batches[0])
        self.settings: dict[str, Any] = {
            "data": [batch.inputs for batch in self.batches],
            "samples": samples,
            "include": include,
            "exclude": exclude,
            "spatial": spatial,
            "options": options,
            "output_of": output_of,
            "quick": quick,
            "seed": seed,
            "watch": watch,
        }
        self.survey = sites(self.model, include=include, exclude=exclude)
        self._calibration: Calibration | None = None
        self._test: dict[str, Any] = {
            "labels": labels,
            "classes": classes,
            "samples": test_samples,
            "output_of": output_of,
        }
        self._test_inputs = test
        self._yardstick: Yardstick | None = None
        self.costs, note = footprint(self.model, self.example)
        self.notes: tuple[str, ...] = (note,) if note else ()

    @property
    def calibration(self) -> Calibration:
        """What the layers see, looked at once, on those inputs that `compression` takes to fit."""
        if self._calibration is None:
            fitted_on, _ = held_back(self.batches)
            names = ("include", "exclude", "samples", "output_of", "seed", "watch")
            self._calibration = calibrate(
                self.model,
                [batch.inputs for batch in fitted_on],
                **{name: self.settings[name] for name in names},
            )
        return self._calibration

    @property
    def yardstick(self) -> Yardstick:
        """The original on the test inputs, once."""
        if self._yardstick is None:
            self.watch("testing the original", 0, 1)
            self._yardstick = Yardstick(self.model, self._test_inputs, **self._test)
        return self._yardstick

    def student(
        self, transform: TransformChoice, budget: Budget, *, name: str = "", folder: str = ""
    ) -> Made:
        """One student, measured; a BudgetError where the budget is below reach."""
        known = self.calibration
        started = time.monotonic()
        done = compression(
            self.model,
            transform,
            **{budget.metric: budget.amount},  # type: ignore[arg-type]
            **self.settings,
            calibration=known,
        )
        seconds = time.monotonic() - started
        self.watch("testing the student", 0, 1)
        costs, _ = footprint(done.student, self.example)
        record = Student(
            name=name or cell_name(transform, budget),
            folder=folder,
            transform=done.plan.request.label,
            budget=str(budget),
            costs=costs,
            quality=self.yardstick.of(merge(done.student)),  # the same outputs, sooner
            latency=latency(done.student, self.model, self.example),
            steps=tuple(
                Tried(step.name, step.error if math.isfinite(step.error) else None, step.kept)
                for step in done.steps
            ),
            layers=tuple(_layers(self.model, done)),
            remarks=done.plan.remarks,
            seconds=round(seconds, 2),
        )
        return Made(done.student, done.plan, record)

    def students(
        self,
        transforms: Sequence[TransformChoice],
        budgets: Sequence[Budget],
        refuse: Callable[[TransformChoice, Budget, ValueError], None] | None = None,
    ) -> Iterator[Made]:
        """A student for every transform and budget; what cannot be made is told to `refuse`, or raised."""
        for transform in transforms:
            for budget in budgets:
                try:
                    made = self.student(transform, budget)
                except ValueError as error:
                    if refuse is None:
                        raise
                    refuse(transform, budget, error)
                    continue
                yield made

    def recovered(
        self,
        made: Made,
        network: nn.Module,
        judged: Iterable[Any],
        *,
        epochs: int,
        rate: float,
        seconds: float,
    ) -> Made:
        """The same student after training, measured again; or from before, where that was no gain.

        It is `judged` by inputs that it was not trained on.
        """
        decided_on = read_batches(judged, self.settings["samples"])
        attempts = Attempts(self.model, decided_on, self.settings["output_of"])
        before, after = attempts.error_of(made.network), attempts.error_of(network)
        recovery = Recovery(
            epochs, rate, round(seconds, 2), self.yardstick.of(merge(network)), after < before
        )
        tried = Tried(f"trained, {epochs} epochs", after if math.isfinite(after) else None, recovery.kept)
        record = dataclasses.replace(made.record, recovery=recovery, steps=(*made.record.steps, tried))
        return Made(network if recovery.kept else made.network, made.plan, record)

    @property
    def looked(self) -> Looked:
        """What the network was looked at with."""
        known = self.calibration
        short = tuple(path for path, seen in known.layers.items() if seen.is_short)
        return Looked(known.samples, len(known.layers), known.idle, short)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The layers that are no site."""
        return tuple(
            Skipped(site.path or "(the network itself)", site.shape, site.skip)
            for site in self.survey
            if site.skip is not None
        )


def every_transform() -> list[str]:
    """The transforms that stand in for a layer: all that are known but the dense one.

    >>> from understudy.experiments import every_transform
    >>> "low_rank" in every_transform(), "dense" in every_transform()
    (True, False)
    """
    return [name for name in list_transforms() if name != "dense"]


def cell_name(transform: TransformChoice, budget: Budget) -> str:
    """What a student is called, which is also a folder's name: `low_rank-50`, `auto-1.2M_mult-adds`."""
    label = f"{100 * budget.amount:g}" if budget.metric == "ratio" else budget.label.replace(" ", "_")
    return f"{transform if isinstance(transform, str) else 'mixed'}-{label}"


@torch.no_grad()
def _layers(model: nn.Module, done: Compression) -> Iterator[LayerShare]:
    """What is kept of each layer, and tr(G ΔW Σ ΔWᵀ) of what is lost, against that of all of it."""
    original, student = opened(model), opened(done.student)
    for layer in done.plan:
        weight = dense_matrix(original.get_submodule(layer.path)).cpu()
        lost = done.calibration.loss(
            layer.path, weight - dense_matrix(student.get_submodule(layer.path)).cpu()
        )
        whole = done.calibration.loss(layer.path, weight)
        error = round(lost / whole, 6) if lost is not None and whole and math.isfinite(lost) else None
        setting = "dense" if layer.spec is None else f"{layer.spec.transform}, {layer.setting}, {layer.way}"
        shape = format_shape(layer.kernel, layer.in_features, layer.out_features)
        yield LayerShare(layer.path, shape, setting, layer.dense_params, layer.params, error, layer.note)
