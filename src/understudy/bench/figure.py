"""Realised speed-up against mult-add reduction, both logarithmic, as SVG by hand: no library is needed."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

from .record import Bench, Row

Axis = Callable[[float], float]
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 760, 520, 60, 50, 30, 190
_COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6", "#dd4477", "#66aa00", "#b82e2e")


def figure(bench: Bench) -> str:
    """A point for every subject in inference, the line where speed-up is what mult-adds promise, and ticks.

    A tick above a point is what the roofline allows that layer: where it lies below the line, memory and not
    arithmetic is the limit.
    """
    rows = [row for row in bench.rows() if row.reduction and row.cell.mode == "inference"]
    if not rows:
        raise ValueError("no inference was measured: there is nothing to draw")
    values = [value for row in rows for value in (row.reduction, row.speedup, row.ideal) if value]
    low, high = math.floor(math.log10(min(*values, 0.9))), math.ceil(math.log10(max(*values, 2)))
    subjects = list(dict.fromkeys(row.measured.subject for row in rows))
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(subjects)}

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (math.log10(value) - low) / (high - low)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * (math.log10(value) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    ]
    for power in range(low, high + 1):
        for factor in (1, 2, 5):
            value = factor * 10.0**power
            if value > 10.0**high:
                continue
            parts += [
                _line(x(value), y(10.0**low), x(value), y(10.0**high), "#eee"),
                _line(x(10.0**low), y(value), x(10.0**high), y(value), "#eee"),
                _text(x(value), _HEIGHT - _BOTTOM + 16, "middle", f"{value:g}"),
                _text(_LEFT - 6, y(value) + 4, "end", f"{value:g}"),
            ]
    parts.append(_line(x(10.0**low), y(10.0**low), x(10.0**high), y(10.0**high), "#888", "6 4"))
    parts.append(_line(x(10.0**low), y(1), x(10.0**high), y(1), "#888"))
    parts += [_point(row, x, y, colours[row.measured.subject]) for row in rows]
    for place, name in enumerate(subjects):
        top = _TOP + 18 * place
        parts.append(f'<circle cx="{_WIDTH - _RIGHT + 20}" cy="{top}" r="5" fill="{colours[name]}"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 32}" y="{top + 4}">{html.escape(name)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">times fewer mult-adds</text>'
        f'<text x="16" y="{_HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {_HEIGHT / 2})">'
        "times quicker</text>"
        f'<text x="{_LEFT}" y="18">dashed: as the mult-adds promise; ticks: the roofline of '
        f"{bench.roof.copy_gb_s:.0f} GB/s and {bench.roof.gmac_s:.0f} GMAC/s</text></svg>"
    )
    return "\n".join(parts) + "\n"


def _point(row: Row, x: Axis, y: Axis, colour: str) -> str:
    assert row.reduction is not None
    across, up = x(row.reduction), y(row.speedup)
    title = f"{row.measured.subject}, {row.cell.name}: {row.reduction:.1f}× fewer, {row.speedup:.2f}× quicker"
    drawn = f'<circle cx="{across:.1f}" cy="{up:.1f}" r="4" fill="{colour}" fill-opacity="0.75">'
    drawn += f"<title>{html.escape(title)}</title></circle>"
    if row.ideal is not None and row.ideal < 0.99 * row.reduction:
        roof = y(row.ideal)
        drawn += _line(across - 4, roof, across + 4, roof, colour)
    return drawn


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'


def _text(x: float, y: float, anchor: str, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'
