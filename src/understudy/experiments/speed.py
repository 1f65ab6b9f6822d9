"""Speed of finished networks: all take turns on one machine, so that they meet the same noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from understudy import data
from understudy._util.factories import check_trust
from understudy._util.layouts import lay_channels_last_
from understudy._util.timing import Timing, time_in_turns
from understudy.results import Speed
from understudy.train import Recipe, Run
from understudy.train.teacher import load_trained

from .folder import read_results, run_folder, write_result
from .task import one_line

BATCH_SIZE = 64
_ROUNDS = 6
_SECONDS = 30.0  # no new round after so long


def measure_speeds(
    out: Path,
    data_folder: Path | None = None,
    *,
    trust: bool = False,
    named: Collection[str] = (),
    rounds: int | None = None,
    seconds: float = _SECONDS,
) -> dict[str, str]:
    """Write images a second and the latency of one image into every finished result.

    Only numbers taken in turns compare: where one is missing, all are to be measured again, and a network
    that cannot be run any more loses its older ones. Returns the names of those, each with the reason. Of the
    functions that a run names only those of `named` are called, without `trust`. No round of the `rounds`
    begins after so many `seconds`.
    """
    finished = [result for result in read_results(out) if result.finished]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    problems: dict[str, str] = {}
    for result in finished:
        try:
            check_trust(result.name, {"data": result.data}, trust=trust, named=named)
            run = Run.read(run_folder(out, result.name))
            facts = data.facts(result.data, data_folder)
            network = load_trained(run.folder, run.recipe, facts.classes, trust=trust, named=named)
            passes = passes_of(network, run.recipe, facts.image_shape, device)
        except Exception as error:  # gone, damaged, too large: it was trained, whatever became of it
            problems[result.name] = one_line(str(error))
        else:
            calls.update({(result.name, batch_size): call for batch_size, call in passes.items()})
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    taken = time_in_turns(calls, rounds=rounds or _ROUNDS, seconds=seconds, wait=wait)
    for result in finished:
        speed = None if result.name in problems else speed_of(result.name, taken)
        write_result(out, dataclasses.replace(result, speed=speed))
    return problems


def speed_of(name: str, taken: Mapping[tuple[str, int], Timing]) -> Speed:
    """What the times of a network's passes say, each found by name and batch size."""
    return Speed(
        images_per_second=round(BATCH_SIZE / taken[name, BATCH_SIZE].best, 1),
        latency_ms=round(1000 * taken[name, 1].best, 3),
        batch_size=BATCH_SIZE,
        threads=torch.get_num_threads(),
    )


def passes_of(
    network: nn.Module, recipe: Recipe, image_shape: tuple[int, ...], device: torch.device
) -> dict[int, Callable[[], object]]:
    """Passes of a finished network by batch size, each tried once."""
    network = network.eval().to(device)
    if recipe.channels_last:
        lay_channels_last_(network)
    passes = {}
    for batch_size in (1, BATCH_SIZE):
        passes[batch_size] = _pass(network, torch.zeros(batch_size, *image_shape, device=device))
        passes[batch_size]()
    return passes


def _pass(network: nn.Module, images: Tensor) -> Callable[[], object]:
    return torch.inference_mode()(lambda: network(images))


def lacks_speed(out: Path) -> bool:
    """Whether a finished network that is still there has not been measured."""
    return any(
        result.finished
        and result.speed is None
        and Run(run_folder(out, result.name), Recipe()).model_file.is_file()
        for result in read_results(out)
    )
