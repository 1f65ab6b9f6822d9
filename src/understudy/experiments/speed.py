"""Speed of finished networks: all take turns on one machine, so that they meet the same noise."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from understudy import data
from understudy.train import Run
from understudy.train.teacher import load_trained

from .results import read_results, write_result
from .task import one_line

BATCH_SIZE = 64
_ROUNDS = 20
_SECONDS = 30.0  # no new round after so long


def measure_speeds(out: Path, data_folder: Path | None = None) -> dict[str, str]:
    """Write images a second and the latency of one image into every finished result.

    Only numbers taken in turns compare: where one is missing, all are to be measured again, and a network
    that cannot be run any more loses its older ones. Returns the names of those, each with the reason.
    """
    finished = [result for result in read_results(out) if result["status"] == "finished"]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    calls: dict[tuple[str, int], Callable[[], float]] = {}
    problems: dict[str, str] = {}
    for result in finished:
        name = result["name"]
        try:
            passes = _passes(out / "runs" / name, data.facts(result["data"], data_folder), device)
        except Exception as error:  # gone, damaged, too large: it was trained, whatever became of it
            problems[name] = one_line(str(error))
        else:
            calls.update({(name, batch_size): call for batch_size, call in passes.items()})
    best = best_of(calls)
    for result in finished:
        name = result["name"]
        result["speed"] = (
            None
            if name in problems
            else {
                "images_per_second": round(BATCH_SIZE / best[name, BATCH_SIZE], 1),
                "latency_ms": round(1000 * best[name, 1], 3),
                "batch_size": BATCH_SIZE,
                "threads": torch.get_num_threads(),
            }
        )
        write_result(out, result)
    return problems


def _passes(folder: Path, facts: data.Facts, device: torch.device) -> dict[int, Callable[[], float]]:
    """Timed passes of a finished network by batch size, each tried once."""
    run = Run.read(folder)
    network = load_trained(folder, run.recipe, facts.classes).eval().to(device)
    if run.recipe.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    passes = {}
    for batch_size in (1, BATCH_SIZE):
        passes[batch_size] = _timed(network, torch.zeros(batch_size, *facts.image_shape, device=device))
        passes[batch_size]()
    return passes


def lacks_speed(out: Path) -> bool:
    """Whether a finished network that is still there has not been measured."""
    return any(
        result["status"] == "finished"
        and result["speed"] is None
        and (out / "runs" / result["name"] / "model.safetensors").is_file()
        for result in read_results(out)
    )


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
