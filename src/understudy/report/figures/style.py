"""One colour and marker for each transform, the same in every figure and on the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from understudy.report.read.cells import Cell

BASELINE, TEACHER = "baseline", "teacher"


@dataclasses.dataclass(frozen=True)
class Style:
    """Colours on white and on a dark ground, told apart by the colour-blind, and a marker's name."""

    light: str
    dark: str
    marker: str


# By name, so that a colour does not depend on which other transforms a sweep has.
_KNOWN = {
    "low_rank": Style("#0072b2", "#4ea5dd", "circle"),
    "tensor_train": Style("#d55e00", "#f08542", "square"),
    "tucker": Style("#00866a", "#2fbd97", "triangle"),
    "acdc": Style("#b3478a", "#dd83b9", "diamond"),
    "hashed": Style("#a87900", "#e6b437", "down"),
    "shuffle": Style("#5b4bb5", "#a89bf0", "pentagon"),
    "dense": Style("#6b6b6b", "#a5a5a5", "plus"),
    BASELINE: Style("#6b6b6b", "#a5a5a5", "cross"),
    TEACHER: Style("#1a1a1a", "#f2f2f2", "star"),
}
# For transforms that are not known by name: any further one repeats a colour with another marker.
_OTHERS = (
    Style("#8c5a2b", "#d09a63", "hexagon"),
    Style("#3f6f2a", "#8cc66f", "left"),
    Style("#a6313c", "#ee8088", "right"),
)


def style_key(cell: Cell) -> str:
    """What decides a cell's style: its transform, or its role where it has none."""
    return cell.transform or (TEACHER if cell.role == "teacher" else BASELINE)


def styles(keys: Iterable[str]) -> dict[str, Style]:
    """The style of every key: known ones first in their fixed order, then the others by name."""
    present = set(keys)
    made = {key: style for key, style in _KNOWN.items() if key in present}
    others = sorted(present - set(_KNOWN))
    return made | {key: _OTHERS[number % len(_OTHERS)] for number, key in enumerate(others)}
