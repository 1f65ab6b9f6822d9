"""One HTML file that needs nothing else: its data, style and script are inside, and it may not reach out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from understudy.report.figures.style import Style, style_key
from understudy.report.read.groups import Ablation, Group, Problem
from understudy.report.read.published import published_notes
from understudy.report.read.summary import counts, tiles
from understudy.report.read.tables import (
    ablation_table,
    cell_table,
    failure_table,
    group_table,
    published_table,
)
from understudy.results import Curves, Result

from .data import embedded_json, page_data
from .parts import document, html_table

_SCRIPTS = ("draw.js", "common.js", "chart.js", "page.js")
_BAR = 120  # width of a bar's drawing, 0 in the middle


def page(
    title: str,
    results: Sequence[Result],
    groups: Sequence[Group],
    rows: Sequence[Ablation],
    curves: Curves | None,
    looks: Mapping[str, Style],
    files: Sequence[str],
    notes: Sequence[str],
) -> str:
    """The whole document; `files` are linked by their paths relative to it, `notes` are shown above them."""
    problems = list(dict.fromkeys(group.problem for group in groups))
    parts = {
        "title": escape(title),
        "data": embedded_json(page_data(groups, problems, looks, curves)),
        "subtitle": escape(_subtitle(results, problems)),
        "tiles": "".join(_tiles(groups, problem, number) for number, problem in enumerate(problems)),
        "problem_choice": _problem_choice(problems),
        "results": html_table(group_table(groups), "results", [style_key(group.first) for group in groups])
        + f"<details><summary>Every cell ({len(results)})</summary>"
        + html_table(cell_table(results), "cells", [style_key(result) for result in results])
        + "</details>",
        "ablations": _ablations(rows, looks),
        "failures": _failures(results),
        "published": "".join(_published(problem, groups, number) for number, problem in enumerate(problems)),
        "method": _METHOD if curves else "",
        "files": _files(files, notes),
    }
    return document("template.html", _SCRIPTS, looks, parts)


_METHOD = """<section id="method" aria-labelledby="method-title"><h2 id="method-title">Method</h2>
<p class="lead">Counted and drawn, not trained.</p>
<div id="method-charts" class="small-charts"></div></section>"""


def _subtitle(results: Sequence[Result], problems: Sequence[Problem]) -> str:
    commits = sorted({result.commit[:12] for result in results if result.commit})
    machines = sorted({str(result.machine) for result in results if result.machine})
    parts = [
        "; ".join(problem.label for problem in problems),
        f"{len(results)} cells ({counts(results)})" if results else "no cells",
        f"commit {', '.join(commits)}" if commits else "",
        machines[0] if len(machines) == 1 else f"{len(machines)} kinds of machine" if machines else "",
    ]
    return " · ".join(part for part in parts if part)


def _tiles(groups: Sequence[Group], problem: Problem, number: int) -> str:
    made = "".join(
        f"<div class='tile'><dt>{escape(tile.label)}</dt><dd>{escape(tile.value)}"
        f"<span>{escape(tile.note)}</span></dd></div>"
        for tile in tiles(groups, problem)
    )
    return f"<dl class='tiles' data-problem='{number}'>{made}</dl>"


def _problem_choice(problems: Sequence[Problem]) -> str:
    if len(problems) < 2:
        return ""
    options = "".join(
        f"<option value='{number}'>{escape(problem.label)}</option>"
        for number, problem in enumerate(problems)
    )
    return f"<label class='choice'>Network and data <select id='problem'>{options}</select></label>"


def _ablations(rows: Sequence[Ablation], looks: Mapping[str, Style]) -> str:
    if not rows:
        return ""
    sizes = [abs(row.difference.mean) + (row.difference.deviation or 0) for row in rows if row.difference]
    largest = max([*sizes, 0.1])
    keys = list(looks)
    made = ""
    for number, factor in enumerate(dict.fromkeys(row.factor for row in rows)):
        mine = [row for row in rows if row.factor == factor]
        made += html_table(
            ablation_table(factor, mine),
            f"ablation-{number}",
            None,
            {"points of error": [_bar(row, largest, keys.index(row.structure)) for row in mine]},
        )
    return (
        "<section id='ablations' aria-labelledby='ablations-title'><h2 id='ablations-title'>Ablations</h2>"
        "<p class='lead'>The same setting and seed with and without; a bar to the left is a lower error.</p>"
        f"{made}</section>"
    )


def _bar(row: Ablation, largest: float, series: int) -> str:
    """A difference as a bar from the middle, with a whisker for its deviation; the table has the number."""
    if row.difference is None:
        return ""

    def place(points: float) -> float:
        return round(_BAR / 2 + points / largest * (_BAR / 2 - 2), 2)

    mean, spread = row.difference.mean, row.difference.deviation or 0.0
    left, right = sorted((place(0), place(mean)))
    return (
        f"<svg class='bar series-{series}' viewBox='0 0 {_BAR} 14' width='{_BAR}' height='14' "
        "aria-hidden='true'>"
        f"<rect x='{left}' y='3' width='{max(right - left, 0.5):g}' height='8' fill='currentColor'/>"
        f"<path class='whisker' d='M{place(mean - spread)} 7H{place(mean + spread)}'/>"
        f"<path class='zero' d='M{_BAR / 2:g} 0V14'/></svg>"
    )


def _failures(results: Sequence[Result]) -> str:
    table = failure_table(results)
    if not table.rows:
        return ""
    return (
        "<section id='failures' aria-labelledby='failures-title'>"
        f"<h2 id='failures-title'>Failures <span class='count'>{len(table.rows)}</span></h2>"
        f"{html_table(table, 'failures')}</section>"
    )


def _published(problem: Problem, groups: Sequence[Group], number: int) -> str:
    table = published_table(problem, groups)
    if not table.rows:
        return ""
    notes = "".join(f"<li>{escape(note)}</li>" for note in published_notes(problem.network, problem.data))
    return (
        f"<section class='published'><h2>{escape(table.title)}</h2>"
        f"{html_table(table, f'published-{number}')}<ul class='notes'>{notes}</ul></section>"
    )


def _files(files: Sequence[str], notes: Sequence[str]) -> str:
    said = "".join(f"<p class='lead'>{escape(note)}</p>" for note in notes)
    kinds: dict[str, list[str]] = {}
    for file in files:
        kinds.setdefault(file.rpartition(".")[0], []).append(file)
    links = "".join(
        f"<li>{escape(stem.rpartition('/')[2])} "
        + " ".join(f"<a href='{quote(file)}'>{escape(file.rpartition('.')[2])}</a>" for file in same)
        + "</li>"
        for stem, same in kinds.items()
    )
    return f"{said}<ul class='files'>{links}</ul>"
