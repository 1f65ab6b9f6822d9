"""One colour and marker for each transform, the same in every figure and on the page of a report."""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Iterable

from understudy.results import Curves, Result

BASELINE, TEACHER = "baseline", "teacher"


@dataclasses.dataclass(frozen=True)
class Style:
    """Colours on white and on a dark ground, and a marker's name."""

    light: str
    dark: str
    marker: str


# On white and on a dark ground: any two differ by at least 13 in CIE Lab, also to the colour-blind.
COLOURS = (
    ("#266896", "#599dd7"),
    ("#d35400", "#d26313"),
    ("#1c8c7a", "#04bf94"),
    ("#761c50", "#f089bf"),
    ("#af9237", "#fdcf45"),
    ("#7444b0", "#848ef4"),
    ("#7b522a", "#dea461"),
    ("#c35951", "#ff7e8d"),
)
MARKERS = (
    "circle", "square", "triangle", "diamond", "down", "pentagon", "hexagon", "left", "right", "plus",
)  # fmt: skip
# The paper's transforms have the first colours and markers, in this order, whatever stands beside them.
_FIRST = ("low_rank", "tensor_train", "tucker", "acdc", "hashed", "shuffle")
_GREY = {
    "dense": Style("#6b6b6b", "#a5a5a5", "plus"),
    BASELINE: Style("#6b6b6b", "#a5a5a5", "cross"),
    TEACHER: Style("#1a1a1a", "#f2f2f2", "star"),
}


def style_key(result: Result) -> str:
    """What decides a result's style: what it is made of, or its role where nothing stands in."""
    return result.structure or (TEACHER if result.role == "teacher" else BASELINE)


def styles(keys: Iterable[str]) -> dict[str, Style]:
    """A style for every key: no two alike, as long as there are combinations of colour and marker left.

    A name that is not among the first decides by its hash where the search for a free combination begins; one
    whose colour and marker are both free goes before others. So the same keys always look the same.
    """
    present = set(keys)
    made = {
        key: Style(*COLOURS[number], MARKERS[number]) for number, key in enumerate(_FIRST) if key in present
    }
    for key in sorted(present - {*_FIRST, *_GREY}):
        made[key] = _free(key, [(style.light, style.marker) for style in made.values()])
    return made | {key: style for key, style in _GREY.items() if key in present}


def _free(key: str, taken: list[tuple[str, str]]) -> Style:
    """The first style from the key's own place on that is least like those taken."""
    every = [Style(*colour, marker) for marker, colour in itertools.product(MARKERS, COLOURS)]
    place = zlib.crc32(key.encode()) % len(every)
    colours, markers = {colour for colour, _ in taken}, {marker for _, marker in taken}

    def alike(style: Style) -> int:
        both = (style.light, style.marker) in taken
        return 4 * both + 2 * (style.light in colours) + (style.marker in markers)

    return min(every[place:] + every[:place], key=alike)


def report_styles(results: Iterable[Result], curves: Curves | None) -> dict[str, Style]:
    """The styles of all that a report draws."""
    drawn = curves.knob_params.transforms if curves and curves.knob_params else ()
    return styles([*map(style_key, results), *drawn])
