"""The training loop, read from top to bottom.

A run is a function of its recipe: batches, augmentation and dropout follow from (seed, step), so a checkpoint
holds only weights, momentum and counters, and a run that was killed ends with the same bits as any other.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy import data as datasets
from understudy.data import Augment, DataSet
from understudy.planning.plan import Plan
from understudy.students.cost import cost
from understudy.students.file import save as save_model

from .divergence import DivergedError, check_finite
from .processes import join
from .recipe import Recipe
from .run import PLAN, RESULT, Run
from .student import check_outputs, make_student, make_student_plan, without_auxiliary
from .teacher import load_teacher, read_inputs
from .tensorboard import TensorBoard
from .trainer import Progress, Trainer, autocast


def train(
    recipe: Recipe,
    out: Path,
    *,
    plan: Plan | None = None,
    data_folder: Path | None = None,
    download: bool = False,
    device: str | None = None,
    tensorboard: bool = False,
    report: Callable[[str], None] = lambda _: None,
    watch: Callable[[Progress, int, float], None] = lambda *_: None,
) -> dict[str, Any]:
    """Train by a recipe into the folder `out`, or go on with the run that is there; returns its result.

    `plan` is the recipe's own, where it has been made already. `report` is told what happens in words;
    `watch` sees every step: the progress, batches an epoch, the loss.
    """
    processes = join(device)
    inputs = read_inputs(recipe)
    run = Run(out, recipe, inputs)
    if run.has_finished():
        report(f"{out} has finished already")
        return run.read_json(RESULT)
    data = load_data(recipe, data_folder, download=download)
    batches = data.train_batches(
        recipe.batch_size,
        seed=recipe.seed,
        augment=Augment(
            padding=0 if recipe.resized_crop else recipe.crop_padding,
            flip=recipe.flip,
            cutout=recipe.cutout,
            resized_crop=recipe.resized_crop,
        ),
        rank=processes.rank,
        world_size=processes.world_size,
        device=processes.device,
        workers=recipe.workers,
    )
    example = data.example
    classes = len(data.classes)
    teacher = load_teacher(recipe, classes)
    plan = plan or make_student_plan(recipe, classes, example)
    network = make_student(recipe, classes, plan, teacher).to(processes.device)
    check_outputs(network, data)
    if teacher is not None and recipe.distillation:
        check_outputs(teacher, data)
    trainer = Trainer(recipe, network, teacher, processes, example)

    if processes.is_first:
        run = Run.open(out, recipe, inputs)
    progress = Progress()
    board = None
    try:
        checkpoint, refused = run.latest(processes.device)
        for reason in refused:
            report(f"checkpoint refused: {reason}")
        if checkpoint:
            progress = trainer.restore(checkpoint)
            report(f"going on from step {progress.step}, epoch {progress.epoch}")
        if processes.is_first:
            if plan is not None:
                plan.save(out / PLAN)
            run.keep_metrics(progress.epoch)
            run.set_status("running")
            board = TensorBoard(out / "tensorboard", progress.step) if tensorboard else None

        saved = time.monotonic()
        while progress.epoch < recipe.epochs:
            started = time.monotonic()
            trainer.begin(progress.epoch)
            for x, y in batches.epoch(progress.epoch, start=progress.batch):
                share = len(y) * processes.world_size / batches.size(progress.batch)
                loss = trainer.step(x, y, share, progress)
                watch(progress, len(batches), loss)
                if processes.is_first and time.monotonic() - saved >= recipe.checkpoint_seconds:
                    check_finite(network, progress.step)
                    run.save(trainer.checkpoint(progress))
                    saved = time.monotonic()
            check_finite(network, progress.step)
            record = trainer.end(progress) | evaluate(trainer.averaged(), recipe, data, processes.device)
            if not math.isfinite(record["test_loss"]):
                raise DivergedError(f"the test loss is {record['test_loss']} after step {progress.step}")
            if processes.is_first:
                run.log(record | {"seconds": round(time.monotonic() - started, 2)})
            if board is not None:
                board.add(record)
            report(
                f"epoch {progress.epoch + 1}/{recipe.epochs}: loss {record['train_loss']:.3f}, "
                f"train error {record['train_error']:.2f} %, test error {record['test_error']:.2f} %, "
                f"top-5 {record['test_top5_error']:.2f} %"
            )
            progress = Progress(step=progress.step, epoch=progress.epoch + 1)
        return finish(run, trainer.averaged(), example, record) if processes.is_first else record
    except Exception as error:
        if processes.is_first:
            status = "diverged" if isinstance(error, DivergedError) else "failed"
            with contextlib.suppress(OSError):  # a full disk, say; the error itself matters more
                run.set_status(status, step=progress.step, reason=str(error) or type(error).__name__)
        raise
    finally:
        if board is not None:
            board.close()
        run.close()


def load_data(recipe: Recipe, folder: Path | None, *, download: bool = False) -> DataSet:
    """The data of a recipe, cut to as many training images as it asks for."""
    data = datasets.load(
        recipe.data, folder, download=download, mean=recipe.mean or None, std=recipe.std or None
    )
    return data.take(train=recipe.train_images) if recipe.train_images else data


def finish(run: Run, network: nn.Module, example: Tensor, last: dict[str, Any]) -> dict[str, Any]:
    """Write the trained network and what it costs; only then has the run finished."""
    network = without_auxiliary(network)
    price = cost(network, example)
    save_model(network, run.model_file)
    result = {
        **last,
        "params": price.params,
        "mult_adds": price.mult_adds,
        "ideal_mult_adds": price.ideal_mult_adds,
        "bytes": run.model_file.stat().st_size,
    }
    run.write_json(RESULT, result)
    run.set_status("finished")
    return result


@torch.no_grad()
def evaluate(network: nn.Module, recipe: Recipe, data: DataSet, device: torch.device) -> dict[str, Any]:
    """Top-1 and top-5 error in percent, and the cross-entropy, on the test images."""
    network.eval()
    first = five = count = 0
    loss = 0.0
    for x, y in data.test_batches(max(recipe.batch_size, 500), device=device, workers=recipe.workers).epoch(
        0
    ):
        if recipe.channels_last:
            x = x.to(memory_format=torch.channels_last)
        with autocast(recipe, x.device):
            logits = network(x).float()
        loss += float(F.cross_entropy(logits, y, reduction="sum"))
        hits = logits.topk(min(5, logits.shape[1])).indices == y[:, None]
        first, five, count = first + int(hits[:, 0].sum()), five + int(hits.sum()), count + len(y)
    return {
        "test_loss": loss / count,
        "test_error": 100 * (1 - first / count),
        "test_top5_error": 100 * (1 - five / count),
        "test_images": count,
    }
