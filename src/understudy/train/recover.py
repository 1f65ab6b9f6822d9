"""Recovery: a fitted student is trained on with the original as its teacher; no labels are needed."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from understudy._util.modules import take_modes_
from understudy.data.sampler import Sampler, has_length, leaves_one
from understudy.distil.groups import parameter_sizes
from understudy.fitting.inputs import OutputOf, read_batches
from understudy.fitting.levels import take_levels_back_
from understudy.students.file import load

from .checkpoint import Progress
from .job import Batch, BatchSource, Job, as_batches
from .loop import Fitted, fit
from .recipe import Recipe
from .run import Run
from .trainer import Trainer

# Chosen by short trials; the rate is for a student whose parameters are as large as `_SIZE`.
SETTINGS = Recipe(
    name="recover",
    epochs=1,
    distillation=1.0,
    distance="outputs",
    optimiser="adamw",
    learning_rate=1e-3,
    rates="size",
    schedule="one_cycle",
    weight_decay=1e-2,
)
_SIZE = 0.2  # about that of ResNet-20's students at half of the parameters
_COARSE = 1e-4  # share of a number that cannot be added to it any more
_TRIALS = 6  # steps by which the time of one is told; the first does not count


@torch.inference_mode(False)
@torch.enable_grad()
def recover(
    student: nn.Module,
    teacher: nn.Module,
    data: BatchSource | Iterable[Any] | Tensor,
    *,
    epochs: int | None = None,
    seconds: float | None = None,
    test: BatchSource | Iterable[Batch] | None = None,
    settings: Mapping[str, Any] | Recipe | None = None,
    out: str | Path | None = None,
    output_of: OutputOf | None = None,
    report: Callable[[str], None] = lambda _: None,
    watch: Callable[[Progress, int, float], None] = lambda *_: None,
) -> Fitted:
    """Train a copy of a fitted `student` to give what the `teacher` gives; `.network` of what is returned.

    `data` are inputs without labels, or with labels that are not looked at: a tensor, which is shuffled, a
    list or a DataLoader of tensors, pairs or dictionaries, one dictionary, or batches of a DataSet. Either so
    many `epochs` of them, or about so many `seconds`: the time of a step is measured, and the rate falls to
    nothing by the last. `settings` change what `settings_for` gives, or are a whole recipe. With `out`, a
    folder, a run that was killed goes on there, and one that has ended is returned as it is; `test` batches
    have labels, and are tried after every epoch. `output_of` takes the tensor to be taught of what the
    networks return, by default the first. A last layer that `compress` scaled and moved begins as it is in
    the teacher. All parameters of a student are trained that are not frozen, or all where all are; it comes
    back in the modes that it was in.

    >>> import torch, understudy as us
    >>> from understudy.train import recover
    >>> model, images = us.create_model("wrn_10_1"), torch.randn(16, 3, 8, 8)
    >>> student = us.compress(model, ratio=0.5, data=images)
    >>> type(recover(student, model, images, epochs=1).network).__name__
    'WideResNet'
    """
    if (epochs is None) == (seconds is None):
        raise ValueError(f"give either epochs or seconds; got {epochs} and {seconds}")
    if seconds is not None and out is not None:
        raise ValueError("a run in a folder goes on, and so it needs epochs: seconds are for one without")
    recipe = settings if isinstance(settings, Recipe) else settings_for(student, settings or {})
    if epochs is not None:
        recipe = dataclasses.replace(recipe, epochs=epochs)
    batches = _batches(data, recipe)
    copied = copy.deepcopy(student)
    _check_precision(copied)
    take_levels_back_(copied, teacher)
    if not any(parameter.requires_grad for parameter in copied.parameters()):
        copied.requires_grad_(True)
    job = Job(copied, batches, teacher, test_batches=test, settings=recipe, output_of=output_of)
    if seconds is not None:
        with torch.random.fork_rng(devices=[]):
            steps = _steps_within(seconds, job)
        report(f"{steps} steps in about {seconds:g} s")
        whole = _Steps(as_batches(batches, job.place), steps)
        job = dataclasses.replace(job, batches=whole, settings=dataclasses.replace(recipe, epochs=1))
    # A run is the same where teacher and plan are; the weights that it began with are in its checkpoints.
    run = None if out is None else Run(Path(out), recipe, job.identity)
    if run is not None and run.has_finished(report):
        report(f"{run.folder} has finished already")
        fitted = Fitted(load(run.model_file, teacher), tuple(run.metrics()), run.outcome())
    else:
        fitted = fit(job, run, report=report, watch=watch)
    take_modes_(fitted.network, student)
    for name, parameter in fitted.network.named_parameters():
        parameter.requires_grad_(student.get_parameter(name).requires_grad)
    return fitted


def _check_precision(student: nn.Module) -> None:
    """Raise a ValueError where parameters are too coarse for the steps that an optimiser takes."""
    for dtype in {parameter.dtype for parameter in student.parameters() if parameter.is_floating_point()}:
        if torch.finfo(dtype).eps > _COARSE:
            name = str(dtype).removeprefix("torch.")
            raise ValueError(f"the student is in {name}, too coarse to be trained: recover student.float()")


def changed_settings(changes: Mapping[str, Any]) -> Recipe:
    """`SETTINGS` with changes; of another optimiser all rates are the same, unless they are named too."""
    is_other = changes.get("optimiser", SETTINGS.optimiser) != SETTINGS.optimiser
    return SETTINGS.replaced({"rates": "same", **changes} if is_other else changes)


def settings_for(student: nn.Module, changes: Mapping[str, Any]) -> Recipe:
    """`changed_settings`; the rate, unless one is named, in proportion to the student's parameters.

    AdamW moves each of them by about the rate at a step, however small they are.
    """
    recipe = changed_settings(changes)
    if "learning_rate" in changes:
        return recipe
    sizes = parameter_sizes(student).values()
    size = statistics.fmean(sizes) if sizes else _SIZE
    rate = float(f"{recipe.learning_rate * size / _SIZE:.2g}")
    is_usable = 0 < rate < math.inf  # of parameters that are not numbers the loop will tell
    return dataclasses.replace(recipe, learning_rate=rate) if is_usable else recipe


def _batches(data: BatchSource | Iterable[Any] | Tensor, recipe: Recipe) -> BatchSource | Iterable[Batch]:
    if isinstance(data, BatchSource):
        return data
    if isinstance(data, Tensor):
        return _Shuffled(data, recipe)
    if isinstance(data, Mapping):
        data = [data]
    if isinstance(data, Iterator) or not has_length(data):
        data = list(data)
    assert isinstance(data, Sized)
    if not len(data):
        raise ValueError("the data hold no batch")
    return _Pairs(data)


class _Pairs:
    """Whatever a loader yields as (inputs, targets); inputs without labels have targets that say nothing."""

    def __init__(self, data: Iterable[Any]) -> None:
        self.data = data

    def __len__(self) -> int:
        assert isinstance(self.data, Sized)
        return len(self.data)

    def __iter__(self) -> Iterator[Batch]:
        for item in self.data:
            batch = read_batches([item], 2**62)[0]
            yield batch.inputs, _targets(batch.size) if batch.labels is None else batch.labels


class _Shuffled:
    """Samples in another order every epoch, which follows from the seed."""

    def __init__(self, inputs: Tensor, recipe: Recipe) -> None:
        self.inputs = inputs
        size = min(recipe.batch_size, len(inputs))
        self.sampler = Sampler(len(inputs), size, recipe.seed, drop_last=leaves_one(len(inputs), size))

    def __len__(self) -> int:
        return self.sampler.steps

    def size(self, step: int) -> int:
        return self.sampler.size(step)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        order = self.sampler.order(epoch).to(self.inputs.device)
        for step in self.sampler.remaining(epoch, start):
            yield self.inputs[order[self.sampler.rows(step)]], _targets(self.sampler.size(step))


class _Steps:
    """So many steps as one epoch, over as many epochs of a source as that takes."""

    def __init__(self, source: BatchSource, steps: int) -> None:
        self.source, self.steps = source, steps

    def __len__(self) -> int:
        return self.steps

    def size(self, step: int) -> int:
        return self.source.size(step % len(self.source))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:  # noqa: ARG002 there is only one
        first, skipped = divmod(start, len(self.source))
        parts = (
            self.source.epoch(number, start=skipped if number == first else 0)
            for number in itertools.count(first)
        )
        return itertools.islice(itertools.chain.from_iterable(parts), self.steps - start)


def _targets(size: int) -> Tensor:
    """Of samples without labels: numbers, so that nobody takes them for classes."""
    return torch.zeros(size)


def _steps_within(seconds: float, job: Job) -> int:
    """How many steps a time allows, by trying a few with a copy; one at least."""
    if seconds <= 0:
        raise ValueError(f"{seconds:g} seconds is not above 0")
    tried = dataclasses.replace(job, model=copy.deepcopy(job.model), test_batches=None)
    source = _Steps(as_batches(job.batches, job.place), _TRIALS)
    progress, times = Progress(), []
    with contextlib.closing(Trainer(tried, _TRIALS)) as trainer:
        trainer.begin(0)
        started = time.monotonic()
        for x, y in source.epoch(0):
            trainer.step(x, y, 1.0, progress)
            times.append(time.monotonic())
    left = seconds - (times[-1] - started)
    return max(1, int(left * (len(times) - 1) / max(times[-1] - times[0], 1e-9)))
