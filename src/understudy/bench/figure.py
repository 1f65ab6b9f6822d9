"""Figures of a benchmark, both axes logarithmic, as SVG by hand: no library is needed."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Sequence

from understudy._util.quantities import format_ms

from .record import Bench, Measured, Row

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 760, 520, 60, 50, 30, 190
_COLOURS = (
    "#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#dd4477", "#66aa00", "#b82e2e",
    "#8fb0f0", "#f29c8a", "#7fd08a", "#8a6d00", "#cc8fd6", "#004d66", "#f2b3c9", "#2e5200", "#5c1f1f",
)  # fmt: skip
Point = tuple[float, float]
_GROWTH_FROM = 512  # narrower layers are mostly calls


class Chart:
    """An empty chart with its grid, to which marks are added; every subject has a colour of its own."""

    def __init__(
        self, across: Iterable[float], up: Iterable[float], subjects: Sequence[str], legend: Sequence[str]
    ) -> None:
        self._across, self._up = _ends(across), _ends(up)
        self._colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(subjects)}
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            f'font-family="sans-serif" font-size="12">'
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
        ]
        (left, right), (bottom, top) = self._across, self._up
        for value in _steps(self._across):
            self.line((value, bottom), (value, top), "#eee")
            self._words(self._x(value), _HEIGHT - _BOTTOM + 16, f"{value:g}", "middle")
        for value in _steps(self._up):
            self.line((left, value), (right, value), "#eee")
            self._words(_LEFT - 6, self._y(value) + 4, f"{value:g}", "end")
        for place, (name, words) in enumerate(zip(subjects, legend, strict=True)):
            high, far = _TOP + 18 * place, _WIDTH - _RIGHT + 20
            self._parts.append(f'<circle cx="{far}" cy="{high}" r="5" fill="{self._colours[name]}"/>')
            self._words(far + 12, high + 4, words, "start")

    def _x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * _share(value, self._across)

    def _y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * _share(value, self._up)

    def _words(self, x: float, y: float, words: str, anchor: str) -> None:
        text = html.escape(words)
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>')

    def line(self, start: Point, end: Point, colour: str, dashes: str = "") -> None:
        """A straight line between two points."""
        (x1, y1), (x2, y2) = ((self._x(x), self._y(y)) for x, y in (start, end))
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'
        )

    def point(self, subject: str, across: float, up: float, title: str) -> None:
        """A dot that tells its title when pointed at."""
        self._parts.append(
            f'<circle cx="{self._x(across):.1f}" cy="{self._y(up):.1f}" r="4" '
            f'fill="{self._colours[subject]}" fill-opacity="0.75">'
            f"<title>{html.escape(title)}</title></circle>"
        )

    def tick(self, subject: str, across: float, up: float) -> None:
        """A short level line."""
        x, y = self._x(across), self._y(up)
        self._parts.append(
            f'<line x1="{x - 4:.1f}" y1="{y:.1f}" x2="{x + 4:.1f}" y2="{y:.1f}" '
            f'stroke="{self._colours[subject]}"/>'
        )

    def path(self, subject: str, points: Sequence[Point]) -> None:
        """Lines from point to point."""
        for start, end in itertools.pairwise(points):
            self.line(start, end, self._colours[subject])

    def told(self, across: str, up: str, title: str) -> str:
        """The whole figure, its axes named."""
        self._words((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 10, across, "middle")
        self._words(_LEFT, 18, title, "start")
        self._parts.append(
            f'<text x="16" y="{_HEIGHT / 2}" text-anchor="middle" '
            f'transform="rotate(-90 16 {_HEIGHT / 2})">{html.escape(up)}</text></svg>'
        )
        return "\n".join(self._parts) + "\n"


def _share(value: float, ends: tuple[float, float]) -> float:
    """How far along a logarithmic axis a value lies."""
    return math.log(value / ends[0]) / math.log(ends[1] / ends[0])


def _ends(values: Iterable[float]) -> tuple[float, float]:
    """The nearest of 1, 2, 5, 10, … below and above all values."""
    found = list(values)
    lowest, highest = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    steps = [factor * 10.0**power for power in range(lowest, highest + 1) for factor in (1, 2, 5)]
    low = max(step for step in steps if step <= min(found))
    return low, min(step for step in steps if step >= max(found) and step > low)


def _steps(ends: tuple[float, float]) -> Iterable[float]:
    """1, 2, 5, 10, … from one end to the other."""
    for power in range(math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1])) + 1):
        for step in (factor * 10.0**power for factor in (1, 2, 5)):
            if 0.999 * ends[0] < step < 1.001 * ends[1]:
                yield step


def figure(bench: Bench) -> str:
    """A point for every subject in inference, the line where speed-up is what mult-adds promise, and ticks.

    A tick above a point is what the roofline allows that layer: where it lies below the line, memory and not
    arithmetic is the limit.
    """
    rows = [row for row in bench.rows() if row.reduction and row.cell.mode == "inference"]
    if not rows:
        raise ValueError("no inference was measured: there is nothing to draw")
    values = [value for row in rows for value in (row.reduction, row.speedup, row.ideal) if value]
    values += [0.9, 2]
    subjects = list(dict.fromkeys(row.measured.subject for row in rows))
    chart = Chart(values, values, subjects, subjects)
    low, high = _ends(values)
    chart.line((low, low), (high, high), "#888", "6 4")
    chart.line((low, 1), (high, 1), "#888")
    for row in rows:
        _mark(chart, row)
    roof = f"the roofline of {bench.roof.copy_gb_s:.0f} GB/s and {bench.roof.gmac_s:.0f} GMAC/s"
    title = f"dashed: as the mult-adds promise; ticks: {roof}"
    return chart.told("times fewer mult-adds", "times quicker", title)


def _mark(chart: Chart, row: Row) -> None:
    assert row.reduction is not None
    subject = row.measured.subject
    title = f"{subject}, {row.cell.name}: {row.reduction:.1f}× fewer, {row.speedup:.2f}× quicker"
    chart.point(subject, row.reduction, row.speedup, title)
    if row.ideal is not None and row.ideal < 0.99 * row.reduction:
        chart.tick(subject, row.reduction, row.ideal)


def times_by_width(bench: Bench, what: str, batch: int) -> dict[str, dict[int, Measured]]:
    """Every subject's inference in eager mode, by the width of the layer."""
    found: dict[str, dict[int, Measured]] = {}
    for done in bench.done:
        cell = done.cell
        if (cell.what, cell.batch, cell.runtime, cell.mode) == (what, batch, "eager", "inference"):
            for one in done.subjects:
                if cell.width is not None:
                    found.setdefault(one.subject, {})[cell.width] = one
    return {name: dict(sorted(by_width.items())) for name, by_width in found.items()}


def exponent(by_width: dict[int, Measured]) -> float | None:
    """The power of the width with which time grows, from 512 channels on: 2 is a dense product's."""
    points = [
        (math.log(width), math.log(one.best_ms)) for width, one in by_width.items() if width >= _GROWTH_FROM
    ]
    if len(points) < 2:
        return None
    middle = sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)
    across = sum((x - middle[0]) ** 2 for x, _ in points)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in points) / across


def growth(bench: Bench, what: str, batch: int) -> str:
    """Time against width, each subject with the power with which it grows."""
    found = {name: each for name, each in times_by_width(bench, what, batch).items() if exponent(each)}
    if not found:
        raise ValueError(f"no two widths of {what} from {_GROWTH_FROM} on were measured: there is no growth")
    widths = [width for by_width in found.values() for width in by_width]
    times = [one.best_ms for by_width in found.values() for one in by_width.values()]
    legend = [f"{name}  {exponent(by_width):.2f}" for name, by_width in found.items()]
    chart = Chart(widths, times, list(found), legend)
    for name, by_width in found.items():
        points = [(float(width), one.best_ms) for width, one in by_width.items()]
        chart.path(name, points)
        for width, time_ms in points:
            chart.point(name, width, time_ms, f"{name}, {width:g} channels: {format_ms(time_ms)} ms")
    title = f"{what}, batch {batch}; with each name the power of the width from {_GROWTH_FROM} on"
    return chart.told("channels", "milliseconds", title)
