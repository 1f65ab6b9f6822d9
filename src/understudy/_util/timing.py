"""Timing: what is to be compared takes turns, so that all of it meets the same noise."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Key = TypeVar("Key")


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of one call: the best of some rounds, which noise can only raise, and the median."""

    best: float
    median: float
    rounds: int


def time_in_turns(
    calls: Mapping[Key, Callable[[], object]],
    *,
    rounds: int,
    seconds: float = math.inf,
    wait: Callable[[], None] = lambda: None,
) -> dict[Key, Timing]:
    """The timing of each call, after one round that does not count.

    No round begins once `seconds` have passed, but for the first. `wait` comes before and after each call: on
    a device that works on its own, it waits until that is done.
    """
    if rounds < 1:
        raise ValueError(f"{rounds} rounds: at least 1 is needed")
    for call in calls.values():
        call()
    taken: dict[Key, list[float]] = {key: [] for key in calls}
    began = time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - began > seconds:
            break
        for key, call in calls.items():
            wait()
            started = time.perf_counter()
            call()
            wait()
            taken[key].append(time.perf_counter() - started)
    return {key: Timing(min(each), statistics.median(each), len(each)) for key, each in taken.items()}
