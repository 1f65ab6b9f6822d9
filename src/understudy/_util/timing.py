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
    """Seconds of one call: the best of some rounds, which noise can only raise, and the median.

    The spread is the middle half of the rounds, as a share of the median.
    """

    best: float
    median: float
    rounds: int
    spread: float = 0.0

    @classmethod
    def of(cls, taken: list[float]) -> Timing:
        """That of some rounds."""
        ordered, count, median = sorted(taken), len(taken), statistics.median(taken)
        spread = (ordered[(3 * count) // 4 if count > 1 else 0] - ordered[count // 4]) / median
        return cls(ordered[0], median, count, spread)


def time_in_turns(
    calls: Mapping[Key, Callable[[], object]],
    *,
    rounds: int,
    least: int = 1,
    seconds: float = math.inf,
    wait: Callable[[], None] = lambda: None,
) -> dict[Key, Timing]:
    """The timing of each call, after one round that does not count.

    No round begins once `seconds` have passed, but for the `least` first ones. `wait` comes before and after
    each call: on a device that works on its own, it waits until that is done.
    """
    if rounds < 1:
        raise ValueError(f"{rounds} rounds: at least 1 is needed")
    for call in calls.values():
        call()
    taken: dict[Key, list[float]] = {key: [] for key in calls}
    began = time.monotonic()
    for number in range(rounds):
        if number >= least and time.monotonic() - began > seconds:
            break
        for key, call in calls.items():
            wait()
            started = time.perf_counter()
            call()
            wait()
            taken[key].append(time.perf_counter() - started)
    return {key: Timing.of(each) for key, each in taken.items()}
