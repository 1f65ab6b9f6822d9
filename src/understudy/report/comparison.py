"""A comparison's numbers → its page: that of the compression, with the comparison before it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from understudy._util.files import whole_file
from understudy.comparisons import Comparison
from understudy.compressions import Compressed

from .page.compression import compression_page
from .page.parts import html_table
from .read.comparison import beside_rivals, claims, comparison_table, limits


def write_comparison(found: Comparison, result: Compressed, folder: Path, files: list[str]) -> Path:
    """Write index.html of the networks side by side and of how the student was made; `files` are linked.

    >>> from pathlib import Path
    >>> from understudy.comparisons import Call, Comparison, Contender
    >>> from understudy.compressions import Compressed, Footprint, Latency, Looked, Machine, Quality, Student
    >>> from understudy.report import write_comparison
    >>> pc, size = Machine("x86_64", 2, "cpu", "2.13", "3.12", 1), Footprint(90, 80, 80, 500)
    >>> answers, looked = Quality(50, 96.0, None, 98.0, 0.99), Looked(64, 2, (), ())
    >>> half = Student("half", "", "low_rank", "50 %", size, answers, Latency(0.2, 0.3, 1), (), (), (), 9.0)
    >>> result = Compressed("0.2", None, pc, "wrn_10_1", {}, "", "", "digits", None, (), (), 0,
    ...     size, answers, looked, (), (half,), (), (), 9.0)
    >>> roles = ("original", "compressed", "student", "narrower")
    >>> networks = [Contender(role, role, 90, 500, 4.0, 60.0, (Call(1, 0.2, 0.3, 9),)) for role in roles]
    >>> found = Comparison("0.2", None, pc, "ONNX Runtime", "digits", 50, 0, tuple(networks))
    >>> write_comparison(found, result, Path(), ["student.onnx"]).name
    'index.html'
    """
    page = compression_page(result, files, above=comparison_section(found))
    with whole_file(folder / "index.html") as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")
    return folder / "index.html"


def comparison_section(found: Comparison) -> str:
    """The table, what is held of what a student promises, and where structure does not help."""
    held = "".join(
        f"<li>{'✓' if claim.is_held else '✗'} {escape(f'{claim.what}: {claim.told}')}</li>"
        for claim in claims(found)
    )
    return (
        "<section id='comparison' aria-labelledby='comparison-title'>"
        "<h2 id='comparison-title'>Side by side</h2>"
        "<p class='lead'>"
        + escape(
            f"Times in {found.runtime}, all networks in turns: best / median. The narrower network may train "
            "as long as everything that made the student: the original's training, the compression, the "
            "recovery."
        )
        + "</p>"
        + html_table(comparison_table(found), "comparison")
        + f"<h3>Against the original</h3><ul class='notes'>{held}</ul>"
        + f"<h3>Against dense networks of its size</h3>{_list(beside_rivals(found))}"
        + f"<h3>Where structure does not help</h3>{_list(limits(found))}</section>"
    )


def _list(lines: list[str]) -> str:
    return "<ul class='notes'>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"
