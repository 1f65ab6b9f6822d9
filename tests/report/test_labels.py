"""No label covers another, whatever the points."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.report.figures.labels import Box, place_labels

BOUNDS = Box(0, 0, 900, 600)
SIZES = (95.0, 14.0)


def overlapping(boxes: list[Box | None]) -> list[tuple[Box, Box]]:
    placed = [box for box in boxes if box is not None]
    return [(one, other) for one, other in itertools.combinations(placed, 2) if one.overlaps(other)]


def test_forty_spread_points_all_get_a_label() -> None:
    dice = random.Random(3)
    points = [(dice.uniform(60, 840), dice.uniform(40, 560)) for _ in range(40)]
    boxes = place_labels(points, [SIZES] * 40, BOUNDS)
    assert not overlapping(boxes)
    assert None not in boxes
    assert all(BOUNDS.contains(box) for box in boxes if box)
    assert not any(box.holds(point) for box in boxes if box for point in points)


def test_forty_crowded_points_get_labels_where_there_is_room() -> None:
    dice = random.Random(4)
    points = [(dice.gauss(450, 40), dice.gauss(300, 40)) for _ in range(40)]
    boxes = place_labels(points, [SIZES] * 40, BOUNDS)
    assert not overlapping(boxes)
    assert sum(box is not None for box in boxes) >= 8


@given(
    st.lists(st.tuples(st.floats(-50, 950), st.floats(-50, 650)), max_size=15),
    st.floats(1, 300),
    st.floats(1, 60),
)
def test_labels_never_overlap_and_stay_inside(
    points: list[tuple[float, float]], width: float, height: float
) -> None:
    boxes = place_labels(points, [(width, height)] * len(points), BOUNDS)
    assert not overlapping(boxes)
    assert all(BOUNDS.contains(box) for box in boxes if box)


def test_the_same_points_give_the_same_labels() -> None:
    points = [(x * 37 % 900, x * 91 % 600) for x in range(40)]
    assert place_labels(points, [SIZES] * 40, BOUNDS) == place_labels(points, [SIZES] * 40, BOUNDS)


def test_an_earlier_label_is_the_nearer_one() -> None:
    points = [(450.0, 300.0)] * 6
    boxes = place_labels(points, [SIZES] * 6, BOUNDS)
    distances = [math.dist(box.nearest(points[0]), points[0]) for box in boxes if box]
    assert len(distances) == 6
    assert distances[0] == min(distances)


def test_a_label_keeps_off_lines_and_other_points() -> None:
    line = ((0.0, 310.0), (900.0, 310.0))
    others = [(450.0 + 20 * step, 290.0) for step in range(8)]
    (box,) = place_labels([(450.0, 300.0)], [SIZES], BOUNDS, points=others, lines=[line])
    assert box is not None
    assert not box.crossed_by(*line)
    assert not any(box.holds(point) for point in others)


def test_no_room_is_no_label() -> None:
    assert place_labels([(5.0, 5.0)], [SIZES], Box(0, 0, 10, 10)) == [None]


def test_a_line_enters_a_box_or_does_not() -> None:
    box = Box(0, 0, 10, 10)
    assert box.crossed_by((-5, 5), (15, 5))
    assert box.crossed_by((-5, -5), (5, 5))
    assert box.crossed_by((5, 20), (5, -20))
    assert not box.crossed_by((-5, 5), (-1, 5))
    assert not box.crossed_by((-5, 11), (15, 11))
    assert not box.crossed_by((12, 20), (12, -20))


def test_a_size_is_needed_for_each_anchor() -> None:
    with pytest.raises(ValueError, match="1 anchors and 2 sizes"):
        place_labels([(0, 0)], [SIZES, SIZES], BOUNDS)
