"""Timing: what is to be compared takes turns, so that all of it meets the same noise."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Key = TypeVar("Key")
_IN_A_ROW = 3  # calls of a turn that count


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of one call: the best of some, which noise can only raise, and the median.

    The spread is the middle half of them, as a share of the median.
    """

    best: float
    median: float
    count: int
    spread: float = 0.0

    @classmethod
    def of(cls, taken: list[float]) -> Timing:
        """That of some calls."""
        ordered, count, median = sorted(taken), len(taken), statistics.median(taken)
        spread = (ordered[(3 * count) // 4 if count > 1 else 0] - ordered[count // 4]) / median
        return cls(ordered[0], median, count, spread)


def time_in_turns(
    calls: Mapping[Key, Callable[[], object]],
    *,
    rounds: int,
    seconds: float = math.inf,
    wait: Callable[[], None] = lambda: None,
) -> dict[Key, Timing]:
    """The timing of each call, in turns of some calls in a row, of which the first does not count.

    It meets what the one before it left behind: threads that still wait for work, and its data in the caches.
    No round of turns but the first begins once `seconds` have passed. `wait` comes before and after each
    call: on a device that works on its own, it waits until that is done.
    """
    if rounds < 1:
        raise ValueError(f"{rounds} rounds: at least 1 is needed")
    taken: dict[Key, list[float]] = {key: [] for key in calls}
    began = time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - began > seconds:
            break
        for key, call in calls.items():
            call()
            for _ in range(_IN_A_ROW):
                wait()
                started = time.perf_counter()
                call()
                wait()
                taken[key].append(time.perf_counter() - started)
    return {key: Timing.of(each) for key, each in taken.items()}
