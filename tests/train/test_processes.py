"""Two processes train as one: only the first writes, they stop together, and they resume together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import understudy as us
from understudy.layers import stand_ins
from understudy.train import DivergedError, Job, Recipe, Run, train
from understudy.train.checkpoint import Progress
from understudy.train.processes import Processes, join, leave
from understudy.train.trainer import Trainer

SETTINGS: dict[str, Any] = {
    "network": "wrn_10_1",
    "train_images": 71,  # the last batch is uneven: 4 and 3
    "epochs": 2,
    "batch_size": 32,
    "learning_rate": 0.05,
    "crop_padding": 1,
    "flip": False,
    "transform": "low_rank",
    "ratio": 0.2,
    "checkpoint_seconds": 0.0,
}


class StoppedError(Exception):
    """Raised by a test in the midst of a run."""


def stop(progress: Progress, _: int, __: float) -> None:
    if progress.step == 5:
        raise StoppedError


def torchrun(rank: int, port: int) -> None:
    """What torchrun tells each of two processes."""
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """They are started once for all that is asked of them."""
    mp.spawn(work, args=(str(tmp_path), free_port()), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    they_write_once_resume_with_the_same_bits_and_diverge_together(tmp_path)
    they_have_the_gradients_of_one_with_every_transform(tmp_path)


def work(rank: int, folder: str, port: int) -> None:
    """One of two processes: gradients, a whole run, one stopped and taken up, one that diverges."""
    torchrun(rank, port)
    try:
        recipe, runs = Recipe().replaced(SETTINGS), Path(folder)
        save_gradients(rank, runs)
        train(recipe, runs / "whole")
        with pytest.raises(StoppedError):
            train(recipe, runs / "cut", watch=stop)
        dist.barrier()
        train(recipe, runs / "cut")
        spoil(rank)
        with pytest.raises(DivergedError, match="the loss is nan at step 0; "):
            train(Recipe().replaced(SETTINGS | {"seed": 1}), runs / "diverged")
        dist.barrier()
    finally:
        leave()
    assert not threads_of_gloo(), "what outlives the interpreter's end may abort the process"


def threads_of_gloo() -> list[str]:
    """The threads of a process group that this process runs, where the system tells (Linux)."""
    names = []
    for file in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # of a thread that has just ended
            names.append(file.read_text())
    return [name for name in names if "gloo" in name]


def spoil(rank: int) -> None:
    """From now on the second process sees a NaN in its images."""
    take = Trainer.step

    def step(self: Any, x: torch.Tensor, *rest: Any) -> float:
        return take(self, x * float("nan") if rank == 1 else x, *rest)

    Trainer.step = step  # type: ignore[method-assign, assignment]


def they_write_once_resume_with_the_same_bits_and_diverge_together(together: Path) -> None:
    left = []
    for name in ("whole", "cut"):
        run = Run.read(together / name)
        assert run.status == "finished"
        assert [epoch.epoch for epoch in run.metrics()] == [0, 1]
        metrics = [dataclasses.replace(epoch, seconds=0.0) for epoch in run.metrics()]
        left.append((metrics, (run.folder / "model.safetensors").read_bytes()))
    assert left[0] == left[1]
    assert Run.read(together / "diverged").status == "diverged"
    reason = json.loads((together / "diverged" / "status.json").read_text())["reason"]
    assert reason == "the loss is nan at step 0; in another process"


# ---- gradients -------------------------------------------------------------------------------------------

BATCHES = (8, 7)  # images of a step; of seven, one process has four and the other three


class Plain(nn.Module):
    """Convolutions of every kind and a linear layer; no norm, which would see half a batch only."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 16, 3, padding=1)
        self.strided = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.pointwise = nn.Conv2d(32, 32, 1)
        self.hidden = nn.Linear(32, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.strided(torch.tanh(self.wide(x))))
        x = torch.tanh(self.pointwise(x)).mean(dim=(2, 3))
        logits: Tensor = self.head(torch.tanh(self.hidden(x)))
        return logits


def gradients(transform: str, processes: Processes, **changes: Any) -> dict[str, Tensor]:
    """The gradients of two steps, by step and parameter, as this process ends up with them."""
    torch.manual_seed(0)
    teacher, dense = Plain().double(), Plain().double()
    example = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
    student = us.substitute(dense, us.plan(dense, transform, scale=0.4, example=example))
    assert list(stand_ins(student)), f"{transform} stands in for nothing here"
    recipe = Recipe().replaced({"learning_rate": 0.1} | changes)
    with_teacher = teacher if recipe.attention or recipe.distillation else None
    job = Job(
        model=student, teacher=with_teacher, batches=[], settings=recipe, example=example, processes=processes
    )
    trainer = Trainer(job, len(BATCHES))
    trainer.begin(0)
    progress = Progress()
    found = {}
    for step, size in enumerate(BATCHES):
        images = torch.randn(size, 3, 8, 8, dtype=torch.float64)
        labels = torch.randint(10, (size,))
        x, y = (torch.tensor_split(whole, processes.world_size)[processes.rank] for whole in (images, labels))
        trainer.step(x, y, len(y) * processes.world_size / size, progress)
        for name, parameter in student.named_parameters():
            assert parameter.grad is not None
            found[f"{step}.{name}"] = parameter.grad.clone(memory_format=torch.contiguous_format)
    return found


LOSSES = {"attention": 10.0, "taps": ["strided", "pointwise"], "distillation": 0.5}


def save_gradients(rank: int, folder: Path) -> None:
    """The gradients of this process with every transform."""
    processes = join("cpu")
    for name in us.list_transforms():
        save_file(gradients(name, processes), folder / f"{name}-{rank}.safetensors")
    save_file(gradients("low_rank", processes, **LOSSES), folder / f"losses-{rank}.safetensors")


def distance(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference of any gradient, relative to its norm."""
    assert ours.keys() == theirs.keys()
    return max(float((ours[key] - theirs[key]).norm() / theirs[key].norm()) for key in ours)


def they_have_the_gradients_of_one_with_every_transform(together: Path) -> None:
    alone = Processes(0, 1, torch.device("cpu"))
    wanted = {name: gradients(name, alone) for name in us.list_transforms()}
    wanted["losses"] = gradients("low_rank", alone, **LOSSES)
    wrong = {}
    for name, expected in wanted.items():
        allowed = 1e-5 if name == "losses" else 1e-12  # the losses of a teacher are taken in float32
        for rank in (0, 1):
            error = distance(load_file(together / f"{name}-{rank}.safetensors"), expected)
            if not error < allowed:
                wrong[f"{name}, process {rank}"] = error
    assert not wrong
