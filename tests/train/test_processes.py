"""Two processes train as one: only the first writes, they stop together, and they resume together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from understudy.train import DivergedError, Recipe, Run, train
from understudy.train.trainer import Progress, Trainer

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


def work(rank: int, folder: str) -> None:
    """One of two processes: a whole run, one that is stopped and taken up, one that diverges in the other."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        recipe, runs = Recipe().replaced(SETTINGS), Path(folder)
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
        dist.destroy_process_group()


def spoil(rank: int) -> None:
    """From now on the second process sees a NaN in its images."""
    take = Trainer.step

    def step(self: Any, x: torch.Tensor, *rest: Any) -> float:
        return take(self, x * float("nan") if rank == 1 else x, *rest)

    Trainer.step = step  # type: ignore[method-assign, assignment]


def test_two_processes_write_once_resume_with_the_same_bits_and_diverge_together(tmp_path: Path) -> None:
    mp.spawn(work, args=(str(tmp_path),), nprocs=2)  # type: ignore[attr-defined, no-untyped-call]
    left = []
    for name in ("whole", "cut"):
        run = Run.read(tmp_path / name)
        assert run.status == "finished"
        assert [record["epoch"] for record in run.metrics()] == [0, 1]
        metrics = [{k: v for k, v in record.items() if k != "seconds"} for record in run.metrics()]
        left.append((metrics, (run.folder / "model.safetensors").read_bytes()))
    assert left[0] == left[1]
    assert Run.read(tmp_path / "diverged").status == "diverged"
    reason = json.loads((tmp_path / "diverged" / "status.json").read_text())["reason"]
    assert reason == "the loss is nan at step 0; in another process"
