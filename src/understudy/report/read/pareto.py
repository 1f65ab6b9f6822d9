"""The Pareto front: what nothing else beats in both cost and error."""

from __future__ import annotations

import math
from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other dominates, by rising cost; equal points are all kept."""
    order = sorted(range(len(points)), key=lambda index: (*points[index], index))
    kept: list[int] = []
    best = math.inf
    for index in order:
        error = points[index][1]
        if error < best or (kept and points[index] == points[kept[-1]]):
            kept.append(index)
            best = error
    return kept
