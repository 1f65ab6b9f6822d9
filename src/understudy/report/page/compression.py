"""The page of a compressed network: the trade-off curve, a bar for every layer, what was skipped and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from understudy._util.quantities import format_bytes, format_count, format_share
from understudy.compressions import Compressed, Quality, Student
from understudy.report.card import best_student
from understudy.report.figures.style import Style, styles
from understudy.report.read.compression_tables import (
    MEASURES,
    after_recovery,
    layer_table,
    left_table,
    measured,
    shown_measures,
    student_table,
    tried_table,
)

from .data import embedded_json
from .parts import document, html_table

_SCRIPTS = ("draw.js", "common.js", "compression.js")
_BAR = 110  # width of a bar's drawing


def compression_page(result: Compressed, files: Sequence[str], *, above: str = "") -> str:
    """The whole document; `files` are linked by their paths relative to it, `above` is HTML before all."""
    looks = styles(student.transform for student in result.students)
    recovered = any(student.kept_recovery for student in result.students)
    parts = {
        "title": escape(f"{result.network}, compressed"),
        "subtitle": escape(_subtitle(result)),
        "tiles": _tiles(result),
        "above": above,
        "data": embedded_json(_data(result, looks)),
        "measures": "".join(
            f"<label><input type='radio' name='measure' value='{measure}'{' checked' * (number == 0)}>"
            f"<span>{measure.capitalize()}</span></label>"
            for number, measure in enumerate(shown_measures(result))
        ),
        "hollow": "Hollow: before recovery. " if recovered else "",
        "students": html_table(
            student_table(result), "students", ["", *(student.transform for student in result.students)]
        ),
        "student_choice": _choice(result),
        "layers": "".join(_layers(student, number, looks) for number, student in enumerate(result.students)),
        "left": _left(result),
        "files": "<ul class='files'>"
        + "".join(f"<li><a href='{quote(file)}'>{escape(file)}</a></li>" for file in files)
        + "</ul>",
    }
    return document("compression.html", _SCRIPTS, looks, parts)


def _subtitle(result: Compressed) -> str:
    parts = [
        f"{result.data}, {result.quality.samples:,} test inputs",
        f"{result.calibration.samples:,} inputs looked at",
        f"commit {result.commit[:12]}" if result.commit else "",
        str(result.machine),
    ]
    return " · ".join(part for part in parts if part)


def _tiles(result: Compressed) -> str:
    """The best student against the original."""
    best, whole = best_student(result), result.original
    now, before = (measured(quality, result.measure).text for quality in (best.final, result.quality))
    unit = "" if result.measure == "cosine" else "\N{NO-BREAK SPACE}%"
    made = [
        (
            MEASURES[result.measure].partition(",")[0].capitalize(),
            f"{now}{unit}",
            f"original {before}{unit}; {best.name}",
        ),
        (
            "Parameters",
            format_share(best.costs.params, whole.params),
            f"{format_count(best.costs.params)} of {format_count(whole.params)}",
        ),
        (
            "Mult-adds",
            format_share(best.costs.mult_adds, whole.mult_adds),
            f"{format_count(best.costs.mult_adds)} of {format_count(whole.mult_adds)}",
        ),
        (
            "Its weights on disk",
            format_share(best.costs.bytes, whole.bytes),
            f"{format_bytes(best.costs.bytes)} of {format_bytes(whole.bytes)}",
        ),
        (
            "Latency in PyTorch",
            f"{best.latency.student:.2f}\N{NO-BREAK SPACE}ms",
            f"the original in turns with it {best.latency.original:.2f} ms",
        ),
    ]
    tiles = "".join(
        f"<div class='tile'><dt>{escape(label)}</dt><dd>{escape(value)}<span>{escape(note)}</span></dd></div>"
        for label, value, note in made
    )
    return f"<dl class='tiles'>{tiles}</dl>"


def _data(result: Compressed, looks: Mapping[str, Style]) -> dict[str, Any]:
    """What the script draws."""
    whole = result.original
    return {
        "series": [{"key": key, "marker": look.marker} for key, look in looks.items()],
        "measures": [{"key": key, "title": MEASURES[key]} for key in shown_measures(result)],
        "best": result.students.index(best_student(result)),
        "original": {
            "params": whole.params,
            "mult_adds": whole.mult_adds,
            "bytes": whole.bytes,
            "latency": result.latency,
            **_measures(result.quality),
        },
        "students": [
            {
                "name": student.name,
                "series": list(looks).index(student.transform),
                "params": student.costs.params,
                "mult_adds": student.costs.mult_adds,
                "bytes": student.costs.bytes,
                "latency": round(student.latency.relative * result.latency, 4),
                "before": _measures(student.quality),
                "after": _measures(student.final) if student.kept_recovery else None,
                "facts": _facts(result, student),
            }
            for student in result.students
        ],
    }


def _measures(quality: Quality) -> dict[str, float | None]:
    return {"accuracy": quality.accuracy, "agreement": quality.agreement, "cosine": quality.cosine}


def _facts(result: Compressed, student: Student) -> list[tuple[str, str]]:
    facts = [
        (MEASURES[measure], measured(student.quality, measure).text) for measure in shown_measures(result)
    ]
    if student.recovery is not None:
        facts.append(("after recovery", after_recovery(student, result.measure).text))
    return [
        *facts,
        ("parameters", f"{student.costs.params:,}"),
        ("mult-adds", format_count(student.costs.mult_adds)),
        ("on disk", format_bytes(student.costs.bytes)),
        ("latency", f"{student.latency.student:.2f} ms, original then {student.latency.original:.2f} ms"),
        ("budget", student.budget),
        ("made in", f"{student.seconds:.0f} s"),
    ]


def _choice(result: Compressed) -> str:
    if len(result.students) < 2:
        return ""
    options = "".join(
        f"<option value='{number}'>{escape(student.name)}</option>"
        for number, student in enumerate(result.students)
    )
    return f"<p><label class='choice'>Student <select id='student'>{options}</select></label></p>"


def _layers(student: Student, number: int, looks: Mapping[str, Style]) -> str:
    """The layers of one student, and how it came to be."""
    series = list(looks).index(student.transform)
    largest = max((layer.error or 0.0 for layer in student.layers), default=0.0) or 1.0
    bars = {
        "kept": [_bar(layer.kept, series) for layer in student.layers],
        f"error, full at {100 * largest:.2g} %": [
            "" if layer.error is None else _bar(layer.error / largest, series) for layer in student.layers
        ],
    }
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in student.remarks)
    return (
        f"<div class='student' data-student='{number}'><h3>{escape(student.name)}</h3>"
        f"{html_table(layer_table(student), f'layers-{number}', None, bars)}"
        f"{html_table(tried_table(student), f'tried-{number}')}"
        + (f"<ul class='notes'>{remarks}</ul>" if remarks else "")
        + "</div>"
    )


def _bar(share: float, series: int) -> str:
    """A share as a bar in its frame; the table has the number."""
    return (
        f"<svg class='bar series-{series}' viewBox='0 0 {_BAR} 12' width='{_BAR}' height='12' "
        "aria-hidden='true'>"
        f"<path class='zero' fill='none' d='M.5 1.5H{_BAR - 0.5}V10.5H.5Z'/>"
        f"<path fill='currentColor' d='M0 1H{_BAR * min(share, 1.0):.1f}V11H0Z'/></svg>"
    )


def _left(result: Compressed) -> str:
    table = left_table(result)
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    if not table.rows and not notes:
        return ""
    return (
        f"<section id='left' aria-labelledby='left-title'><h2 id='left-title'>{escape(table.title)}</h2>"
        f"{html_table(table, 'left') if table.rows else ''}"
        + (f"<ul class='notes'>{notes}</ul>" if notes else "")
        + "</section>"
    )
