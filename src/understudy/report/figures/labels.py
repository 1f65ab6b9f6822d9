"""Where labels go so that none covers another: greedy, the same on every run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

Point = tuple[float, float]
Line = tuple[Point, Point]
# Directions around a point, the ones read most easily first: right above, left above, ...
_ANGLES = (45, 135, 315, 225, 90, 270, 0, 180, 22, 158, 338, 202, 67, 113, 293, 247)
_GAP = 1.0  # between a label and whatever is beside it
_DISTANCES = (3.0, 6.0, 10.0, 15.0, 23.0, 33.0, 45.0, 60.0, 80.0)


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle; y may run up or down."""

    left: float
    low: float
    right: float
    high: float

    def overlaps(self, other: Box) -> bool:
        """Whether the two share some area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.low < other.high
            and other.low < self.high
        )

    def contains(self, other: Box) -> bool:
        """Whether the other is wholly inside."""
        return (
            self.left <= other.left
            and self.low <= other.low
            and other.right <= self.right
            and other.high <= self.high
        )

    def holds(self, point: Point) -> bool:
        """Whether a point is inside."""
        return self.left <= point[0] <= self.right and self.low <= point[1] <= self.high

    def grown(self, margin: float) -> Box:
        """With a margin on every side."""
        return Box(self.left - margin, self.low - margin, self.right + margin, self.high + margin)

    def nearest(self, point: Point) -> Point:
        """The point of the box that is nearest to a point."""
        return min(max(point[0], self.left), self.right), min(max(point[1], self.low), self.high)

    def crossed_by(self, start: Point, end: Point) -> bool:
        """Whether a straight line enters the box."""
        first, last = 0.0, 1.0
        for begin, finish, low, high in (
            (start[0], end[0], self.left, self.right),
            (start[1], end[1], self.low, self.high),
        ):
            step = finish - begin
            if step == 0:
                if not low < begin < high:
                    return False
                continue
            enter, leave = sorted(((low - begin) / step, (high - begin) / step))
            first, last = max(first, enter), min(last, leave)
        return first < last


def place_labels(
    anchors: Sequence[Point],
    sizes: Sequence[Point],
    bounds: Box,
    *,
    points: Sequence[Point] = (),
    lines: Sequence[Line] = (),
    marker: float = 4.0,
) -> list[Box | None]:
    """A box of each size near each anchor, earlier ones first; None where there is no room.

    No box covers another, a marker (a square of `marker` around each anchor and each of `points`), one of the
    `lines`, or the line from another box to its anchor. All are within the bounds.
    """
    if len(anchors) != len(sizes):
        raise ValueError(f"{len(anchors)} anchors and {len(sizes)} sizes: there must be one size for each")
    markers = [Box(x, y, x, y).grown(marker) for x, y in dict.fromkeys([*anchors, *points])]
    placed: list[Box | None] = []
    boxes: list[Box] = []
    taken = list(lines)
    for anchor, size in zip(anchors, sizes, strict=True):
        found = None
        for box in _candidates(anchor, size, marker):
            wide = box.grown(_GAP)
            line = (anchor, box.nearest(anchor))
            if (
                bounds.contains(box)
                and not any(wide.overlaps(other) for other in boxes)
                and not any(box.overlaps(other) for other in markers)
                and not any(wide.crossed_by(*other) for other in taken)
                and not any(other.crossed_by(*line) for other in boxes)
                and not any(other.crossed_by(*line) for other in markers if not other.holds(anchor))
            ):
                found = box
                boxes.append(box)
                taken.append(line)
                break
        placed.append(found)
    return placed


def _candidates(anchor: Point, size: Point, marker: float) -> Iterator[Box]:
    width, height = size
    for distance in _DISTANCES:
        for angle in _ANGLES:
            cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
            x = anchor[0] + (marker + distance) * cosine
            y = anchor[1] + (marker + distance) * sine
            # the side or corner that faces the anchor touches (x, y)
            left = x - width * (1 - cosine) / 2 if abs(cosine) < 0.7 else x - width * (cosine < 0)
            low = y - height * (1 - sine) / 2 if abs(sine) < 0.7 else y - height * (sine < 0)
            yield Box(left, low, left + width, low + height)
