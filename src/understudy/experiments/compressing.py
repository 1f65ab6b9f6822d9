"""Compress a trained network into a folder: students, plans, every number; killed, it goes on."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from understudy import __version__
from understudy._util.provenance import commit, this_machine
from understudy._util.records import Json
from understudy.compressions import Compressed, Refused
from understudy.data.found import Found
from understudy.planning.budget import Budget
from understudy.planning.request import TransformChoice
from understudy.train import DivergedError, recover
from understudy.train.checkpoint import Progress
from understudy.train.recover import settings_for

from .tradeoff import Made, Tradeoff, cell_name
from .unfinished import Unfinished


@dataclasses.dataclass(frozen=True)
class Origin:
    """The network that is compressed: what it is called, how it was made, which weights it has."""

    network: str
    options: Mapping[str, Any]
    weights: str = ""
    digest: str = ""


@dataclasses.dataclass(frozen=True)
class Teaching:
    """Epochs with the original as teacher, and what is changed of the settings of that training."""

    epochs: int
    changes: Mapping[str, Json]


def compress_into(
    place: Unfinished,
    origin: Origin,
    model: nn.Module,
    found: Found,
    *,
    transforms: Sequence[TransformChoice],
    budgets: Sequence[Budget],
    teaching: Teaching | None,
    settings: Mapping[str, Any],
    finish: Callable[[Compressed, Path], None],
    report: Callable[[str], None] = lambda _: None,
    watch: Callable[[str, int, int], None] = lambda *_: None,
    watch_training: Callable[[Progress, int, float], None] = lambda *_: None,
) -> Compressed:
    """Make every student, and put the folder in its place; nothing is left there where none can be made.

    `settings` are those of `Tradeoff`. `finish` writes what is to read into the folder, before it takes its
    place. Of several students those that cannot be made are told in the result; of one alone it is an error.
    A student whose recovery diverges is kept as it was fitted.
    """
    cells = [(transform, budget) for transform in transforms for budget in budgets]
    single = cell_name(*cells[0]) if len(cells) == 1 else ""
    refused: list[Refused] = []
    notes: list[str] = []
    with place:
        curve = Tradeoff(
            model,
            data=found.inputs,
            test=found.test,
            labels=found.labelled,
            classes=len(found.classes) or None,
            watch=watch,
            **settings,
        )
        students = []
        for number, (transform, budget) in enumerate(cells):
            name = cell_name(transform, budget)
            if place.kept(name) is None:
                _ = curve.calibration  # what is wrong with the data is wrong for every student
            try:
                made = _student(place, curve, transform, budget, folder="" if single else name)
            except ValueError as error:
                if single:
                    raise
                refused.append(Refused(name, str(transform), str(budget), str(error)))
                report(f"[{number + 1}/{len(cells)}] {name}: {error}")
                continue
            if teaching is not None and made.record.recovery is None:
                try:
                    made = _recovered(place, curve, made, teaching, found, report, watch_training)
                except DivergedError as error:
                    notes.append(f"{name} is as it was fitted, for its recovery diverged: {error}")
                    report(notes[-1])
            students.append(made.record)
            report(f"[{number + 1}/{len(cells)}] {name}: {said(made)}")
        if not students:
            raise ValueError(f"no student can be made: {refused[0].reason}")
        notes += curve.notes
        quality = curve.yardstick.quality
        if quality.accuracy is None and found.classes:
            notes.append(
                f"{found.name} has {len(found.classes)} classes, which are not the network's outputs: "
                "students are held against the original's answers"
            )
        inputs = curve.example.inputs
        result = Compressed(
            understudy=__version__,
            commit=commit(),
            machine=this_machine(),
            network=origin.network,
            options=origin.options,
            weights=origin.weights,
            weights_digest=origin.digest,
            data=found.name,
            input_shape=tuple(inputs.shape) if isinstance(inputs, Tensor) else None,
            mean=found.mean,
            std=found.std,
            seed=int(settings.get("seed", 0)),
            original=curve.costs,
            quality=quality,
            calibration=curve.looked,
            skipped=curve.skipped,
            students=tuple(students),
            refused=tuple(refused),
            notes=tuple(notes),
            seconds=round(
                sum(one.seconds + (one.recovery.seconds if one.recovery else 0) for one in students), 2
            ),
        )
        result.save(place.folder)
        finish(result, place.folder)
        place.publish()
    return result


def _student(
    place: Unfinished, curve: Tradeoff, transform: TransformChoice, budget: Budget, folder: str
) -> Made:
    """A student that was made before, or a new one."""
    name = cell_name(transform, budget)
    if place.kept(name) is not None:
        return place.made(name, curve.model)
    made = curve.student(transform, budget, name=name, folder=folder)
    place.keep(made)
    return made


def _recovered(
    place: Unfinished,
    curve: Tradeoff,
    made: Made,
    teaching: Teaching,
    found: Found,
    report: Callable[[str], None],
    watch: Callable[[Progress, int, float], None],
) -> Made:
    """The student after its epochs with the original as teacher; a run that was killed goes on."""
    folder = place.run_folder(made.record.name)
    settings = settings_for(made.network, teaching.changes)
    started = time.monotonic()
    fitted = recover(
        made.network,
        curve.model,
        found.training,
        epochs=teaching.epochs,
        settings=settings,
        out=folder,
        output_of=curve.settings["output_of"],
        report=report,
        watch=watch,
    )
    seconds = sum(epoch.seconds for epoch in fitted.epochs) or time.monotonic() - started
    rate = settings.learning_rate
    again = curve.recovered(
        made, fitted.network, found.judged, epochs=teaching.epochs, rate=rate, seconds=seconds
    )
    place.keep(again)
    return again


def said(made: Made) -> str:
    """A student in one line."""
    record = made.record
    words = [f"{record.costs.params:,} parameters"]
    undone = "" if record.kept_recovery else ", undone"
    for label, quality in (
        ("", record.quality),
        (f" after recovery{undone}", record.recovery and record.recovery.quality),
    ):
        if not quality:
            continue
        if quality.accuracy is not None:
            words.append(f"accuracy {quality.accuracy:.2f} %{label}")
        elif quality.agreement is not None:
            words.append(f"agreement {quality.agreement:.2f} %{label}")
        else:
            words.append(f"cosine {quality.cosine:.4f}{label}")
    return ", ".join(words)
