"""The training loop, read from top to bottom.

A run is a function of its recipe: batches, augmentation and dropout follow from (seed, step), so a checkpoint
holds only weights, what the optimiser remembers, and counters, and a run that was killed ends with the same
bits as any other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from understudy._util.layouts import lay_contiguous_
from understudy.planning.plan import Plan
from understudy.students.cost import cost
from understudy.students.file import file_size
from understudy.students.file import save as save_model

from .answers import Keep
from .checkpoint import Progress
from .divergence import DivergedError, check_finite
from .evaluation import evaluate
from .figures import Epoch, Outcome, Standing
from .job import BatchSource, Job, as_batches, prepare
from .recipe import Recipe
from .run import PLAN, Run
from .student import without_auxiliary
from .teacher import read_inputs
from .tensorboard import TensorBoard
from .trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A trained network as it is used (the running average, without an auxiliary head), and its figures.

    >>> import torch
    >>> from understudy.train import Job, Recipe, fit
    >>> batches = [(torch.randn(8, 4), torch.randint(2, (8,)))]
    >>> job = Job(torch.nn.Linear(4, 2), batches, settings=Recipe(epochs=2), example=torch.randn(1, 4))
    >>> fitted = fit(job)
    >>> fitted.network, len(fitted.epochs), fitted.outcome.params
    (Linear(in_features=4, out_features=2, bias=True), 2, 10)
    """

    network: nn.Module
    epochs: tuple[Epoch, ...]  # those of this call
    outcome: Outcome


def train(
    recipe: Recipe,
    out: Path,
    *,
    plan: Plan | None = None,
    data_folder: Path | None = None,
    download: bool = False,
    device: str | None = None,
    tensorboard: bool = False,
    trust: bool = False,
    keep: Keep | None = None,
    report: Callable[[str], None] = lambda _: None,
    watch: Callable[[Progress, int, float], None] = lambda *_: None,
) -> Outcome:
    """Train by a recipe into the folder `out`, or go on with the run that is there; returns what came out.

    `plan` is the plan of the recipe's request, where it is made already. With `trust`, a function that the
    folder of its teacher names may be called. `keep` says where the teacher's answers are kept for other runs
    that ask the same; they are then rounded to float16. `report` is told what happens in words; `watch` sees
    every step: the progress, batches an epoch, the loss.

    >>> from pathlib import Path
    >>> from understudy.train import load_recipe, train
    >>> tiny = {"network": "wrn_10_1", "epochs": 1, "train_images": 32, "batch_size": 32}
    >>> outcome = train(load_recipe("demo", tiny), Path("run"))
    >>> outcome.params, outcome.errors.test_images
    (77850, 500)
    """
    run = Run(out, recipe, read_inputs(recipe))
    if run.has_finished(report):
        report(f"{out} has finished already")
        return run.outcome()
    job = prepare(
        recipe, data_folder=data_folder, download=download, device=device, plan=plan, trust=trust, keep=keep
    )
    return fit(job, run, tensorboard=tensorboard, report=report, watch=watch).outcome


def fit(
    job: Job,
    run: Run | str | Path | None = None,
    *,
    tensorboard: bool = False,
    report: Callable[[str], None] = lambda _: None,
    watch: Callable[[Progress, int, float], None] = lambda *_: None,
) -> Fitted:
    """Do a job: train its model in place. In a run's folder it leaves all that the run needs to go on.

    Without a run nothing is written. `report` and `watch` are as for `train`.

    >>> import torch
    >>> from understudy.train import Job, Recipe, fit
    >>> batches = [(torch.randn(8, 4), torch.randint(2, (8,)))]
    >>> fitted = fit(Job(torch.nn.Linear(4, 2), batches, settings=Recipe(epochs=3)), "mine")
    >>> [epoch.step for epoch in fitted.epochs]
    [1, 2, 3]
    """
    batches = as_batches(job.batches, job.place)
    kept = run if isinstance(run, Run) or run is None else Run(Path(run), job.settings, job.identity)
    if kept is not None:
        file_size(job.model)  # what no file can hold is refused before it is trained
    # Every step sets a seed; the caller's numbers are left alone.
    with torch.random.fork_rng(devices=[]), contextlib.closing(Trainer(job, len(batches))) as trainer:
        if kept is not None and job.place.is_first:
            kept.take()
        return _fitted(job, trainer, batches, kept, tensorboard=tensorboard, report=report, watch=watch)


def _fitted(
    job: Job,
    trainer: Trainer,
    batches: BatchSource,
    kept: Run | None,
    *,
    tensorboard: bool,
    report: Callable[[str], None],
    watch: Callable[[Progress, int, float], None],
) -> Fitted:
    """The loop itself, in a folder that is taken."""
    settings, processes = job.settings, job.place
    writer = kept if processes.is_first else None
    progress, epochs, board = Progress(), [], None
    try:
        checkpoint, refused = kept.latest(processes.device, trainer.check) if kept is not None else (None, [])
        for reason in refused:
            report(f"checkpoint refused: {reason}")
        if checkpoint:
            progress = trainer.restore(checkpoint)
            report(f"going on from step {progress.step}, epoch {progress.epoch}")
        if writer is not None:
            if job.plan is not None:
                job.plan.save(writer.folder / PLAN)
            writer.keep_metrics(progress.epoch)
            writer.set_status("running")
            board = TensorBoard(writer.folder / "tensorboard", progress.step) if tensorboard else None

        saved = time.monotonic()
        while progress.epoch < settings.epochs:
            started = time.monotonic()
            trainer.begin(progress.epoch)
            for x, y in batches.epoch(progress.epoch, start=progress.batch):
                share = 1.0
                if processes.world_size > 1:
                    share = len(y) * processes.world_size / batches.size(progress.batch)
                loss = trainer.step(x, y, share, progress)
                watch(progress, len(batches), loss)
                if writer is not None and time.monotonic() - saved >= settings.checkpoint_seconds:
                    check_finite(job.model, progress.step)
                    writer.save(trainer.checkpoint(progress))
                    saved = time.monotonic()
            check_finite(job.model, progress.step)
            for problem in trainer.teaching.problems():
                report(f"the teacher's answers: {problem}")
            epoch = trainer.end(progress)
            if job.test_batches is not None:
                errors = evaluate(
                    trainer.averaged(),
                    job.test_batches,
                    settings,
                    device=processes.device,
                    output_of=job.output_of,
                )
                if not math.isfinite(errors.test_loss):
                    raise DivergedError(f"the test loss is {errors.test_loss} after step {progress.step}")
                epoch = dataclasses.replace(epoch, errors=errors)
            epochs.append(dataclasses.replace(epoch, seconds=round(time.monotonic() - started, 2)))
            if writer is not None:
                writer.log(epochs[-1])
            if board is not None:
                board.add(epochs[-1].numbers())
            report(f"epoch {progress.epoch + 1}/{settings.epochs}: {epochs[-1]}")
            progress = Progress(step=progress.step, epoch=progress.epoch + 1)
        trainer.close()
        return finish(job, trainer.averaged(), tuple(epochs), writer)
    except Exception as error:
        if writer is not None:
            status: Standing = "diverged" if isinstance(error, DivergedError) else "failed"
            with contextlib.suppress(OSError):  # a full disk, say; the error itself matters more
                writer.set_status(status, step=progress.step, reason=str(error) or type(error).__name__)
        raise
    finally:
        if board is not None:
            board.close()
        if writer is not None:
            writer.close()


def finish(job: Job, network: nn.Module, epochs: tuple[Epoch, ...], run: Run | None) -> Fitted:
    """Count what the trained network costs, and write it; only then has the run finished."""
    network = lay_contiguous_(without_auxiliary(network))
    # The time is no part of what came out: the same run has the same bytes whenever it ran.
    outcome = Outcome(dataclasses.replace(epochs[-1], seconds=0.0) if epochs else None)
    if job.example is not None and job.place.is_first:
        price = cost(network, job.example)
        outcome = dataclasses.replace(
            outcome,
            params=price.params,
            mult_adds=price.mult_adds,
            ideal_mult_adds=price.ideal_mult_adds,
        )
    if run is not None:
        save_model(network, run.model_file)
        outcome = dataclasses.replace(outcome, bytes=run.model_file.stat().st_size)
        run.set_outcome(outcome)
        run.set_status("finished")
    return Fitted(network, epochs, outcome)
