"""Speed of finished networks: all take turns on one machine, so that they meet the same noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from understudy import data
from understudy.train import Run
from understudy.train.networks import load_trained

from .results import Result, read_results, write_result

BATCH_SIZE = 64
_ROUNDS = 20
_SECONDS = 30.0  # no new round after so long


def measure_speeds(out: Path, data_folder: Path | None = None) -> None:
    """Write images a second and the latency of one image into every finished result.

    Only numbers taken in turns compare: where one is missing, all are to be measured again.
    """
    finished = [result for result in read_results(out) if result["status"] == "finished"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    calls: dict[tuple[str, int], Callable[[], float]] = {}
    for result in finished:
        classes, shape = data.facts(result["data"], data_folder)
        run = Run.read(out / "runs" / result["name"])
        network = load_trained(run.folder, run.recipe, classes).eval().to(device)
        if run.recipe.channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for batch_size in (1, BATCH_SIZE):
            images = torch.zeros(batch_size, *shape, device=device)
            calls[result["name"], batch_size] = _timed(network, images)
    best = best_of(calls)
    for result in finished:
        result["speed"] = {
            "images_per_second": round(BATCH_SIZE / best[result["name"], BATCH_SIZE], 1),
            "latency_ms": round(1000 * best[result["name"], 1], 3),
            "batch_size": BATCH_SIZE,
            "threads": torch.get_num_threads(),
        }
        write_result(out, result)


def lacks_speed(results: Iterable[Result]) -> bool:
    """Whether a finished network has not been measured."""
    return any(result["status"] == "finished" and result["speed"] is None for result in results)


def best_of(calls: dict[Any, Callable[[], float]]) -> dict[Any, float]:
    """The least of what each call gives; they take turns, after one that does not count."""
    for call in calls.values():
        call()
    best = dict.fromkeys(calls, float("inf"))
    started = time.monotonic()
    for _ in range(_ROUNDS):
        for key, call in calls.items():
            best[key] = min(best[key], call())
        if time.monotonic() - started > _SECONDS:
            break
    return best


def _timed(network: nn.Module, images: Tensor) -> Callable[[], float]:
    """A call that returns the seconds of one pass."""

    @torch.inference_mode()
    def call() -> float:
        _synchronise(images.device)
        started = time.perf_counter()
        network(images)
        _synchronise(images.device)
        return time.perf_counter() - started

    return call


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
