"""Results → a report: tables, figures and one page. No torch is needed to write it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from understudy._util.files import whole_file
from understudy.report.figures.canvas import MissingPlotsError
from understudy.report.figures.sweep_figures import write_figures
from understudy.report.page.document import page
from understudy.report.read.cells import Cell, parse_cells
from understudy.report.read.groups import Ablation, Group, ablations, group_cells
from understudy.report.read.published import Published, published, published_notes
from understudy.report.read.spreadsheet import csv_text
from understudy.report.read.summary import counts
from understudy.report.read.tables import (
    ablation_table,
    bullet_list,
    cell_table,
    escape_markdown,
    failure_table,
    group_table,
    markdown,
    published_table,
)

__all__ = ["Cell", "Published", "parse_cells", "published", "published_notes", "write_report"]

_log = logging.getLogger(__name__)


def write_report(
    results: Sequence[Mapping[str, Any]], out: Path, *, title: str, curves: Mapping[str, Any] | None = None
) -> Path:
    """Write index.html, tables.md, results.csv and figures/ into `out`; gives the path of index.html.

    `results` are result files of format 1, finished or not. `curves` comes from
    `understudy.experiments.curves` and adds the figures that need no training. Without matplotlib there are
    no figures: the page and the log say so.
    """
    cells = parse_cells(results)
    groups = group_cells(cells)
    rows = ablations(cells)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []
    figures: list[Path] = []
    try:
        figures = write_figures(groups, rows, curves, out / "figures")
    except MissingPlotsError as error:
        notes.append(f"No figures were written: {error}")
        _log.warning("no figures in %s: %s", out, error)
    _write(out / "tables.md", markdown_report(title, cells, groups, rows))
    _write(out / "results.csv", csv_text(cells))
    files = ["tables.md", "results.csv", *(f"figures/{path.name}" for path in figures)]
    _write(out / "index.html", page(title, cells, groups, rows, curves, files, notes))
    return out / "index.html"


def markdown_report(
    title: str, cells: Sequence[Cell], groups: Sequence[Group], rows: Sequence[Ablation]
) -> str:
    """All tables as one Markdown document."""
    parts = [f"# {escape_markdown(title)}", f"{len(cells)} cells: {counts(cells)}."]
    tables = [group_table(groups)]
    tables += [
        ablation_table(factor, [row for row in rows if row.factor == factor])
        for factor in dict.fromkeys(row.factor for row in rows)
    ]
    tables += [failure_table(cells)]
    for table in tables:
        if table.rows:
            parts += [f"## {table.title}", markdown(table)]
    for task in dict.fromkeys(group.task for group in groups):
        table = published_table(task, groups)
        if table.rows:
            parts += [f"## {escape_markdown(table.title)}", markdown(table)]
            parts += [bullet_list(published_notes(task.network, task.data))]
    parts += ["## Every cell", markdown(cell_table(cells))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _write(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
