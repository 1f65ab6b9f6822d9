"""Results → the files of a report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from understudy._util.files import whole_file
from understudy.results import Curves, Result, check_names

from .figures.canvas import MissingPlotsError
from .figures.style import report_styles
from .figures.sweep_figures import write_figures
from .markdown import markdown_report
from .page.document import page
from .read.groups import ablations, group_results
from .spreadsheet import csv_text

_log = logging.getLogger(__name__)


def write_report(results: Sequence[Result], out: Path, *, title: str, curves: Curves | None = None) -> Path:
    """Write index.html, tables.md, results.csv and figures/ into `out`; gives the path of index.html.

    `results` are those of a sweep, finished or not. `curves` comes from `understudy.experiments.curves` and
    adds the figures that need no training. Without matplotlib there are no figures: the page and the log say
    so.

    >>> from pathlib import Path
    >>> from understudy.report import write_report
    >>> from understudy.experiments import load_grid, new_result, plan_cells
    >>> results = [new_result("digits", planned) for planned in plan_cells(load_grid("digits"))]
    >>> write_report(results, Path("report"), title="Digits").name  # of what is planned so far
    'index.html'
    >>> "low_rank-30k" in Path("report/tables.md").read_text(encoding="utf-8")
    True
    """
    check_names(results)
    groups = group_results(results)
    rows = ablations(results)
    looks = report_styles(results, curves)
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    notes: list[str] = []
    figures: list[Path] = []
    try:
        figures = write_figures(groups, rows, curves, looks, out / "figures")
    except MissingPlotsError as error:
        notes.append(f"No figures were written: {error}")
        _log.warning("no figures in %s: %s", out, error)
    _write(out / "tables.md", markdown_report(title, results, groups, rows))
    _write(out / "results.csv", csv_text(results))
    files = ["tables.md", "results.csv", *(f"figures/{path.name}" for path in figures)]
    _write(out / "index.html", page(title, results, groups, rows, curves, looks, files, notes))
    return out / "index.html"


def _write(path: Path, text: str) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
