"""Fill docs/performance.md from the committed benchmark: its tables, and the figure beside it.

understudy bench --out benchmarks/results/bench.json
python benchmarks/performance.py
"""

from __future__ import annotations

import re
from pathlib import Path

from understudy.bench.figure import exponent, figure, growth, times_by_width
from understudy.bench.record import Bench
from understudy.bench.tables import sections

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "bench.json"
PAGE = ROOT / "docs" / "performance.md"
FIGURE = ROOT / "docs" / "performance.svg"
GROWTH = ROOT / "docs" / "performance_growth.svg"
_GROWING, _BATCH = "tokens", 32
_BEGIN, _END = "<!-- measured -->", "<!-- end -->"
_NOTHING = "No result is committed yet.\n"


def filled(page: str, bench: Bench | None) -> str:
    """The page with everything between its two marks as the benchmark says."""
    measured = _NOTHING
    if bench is not None:
        figures = f"![Times quicker against times fewer mult-adds]({FIGURE.name})"
        if GROWTH.is_file():
            figures += f"\n\n![Time against width, and its power]({GROWTH.name})"
        measured = f"{figures}\n\n{sections(bench)}"
    pattern = re.compile(f"(?<={re.escape(_BEGIN)}\n\n).*?(?=\n{re.escape(_END)})", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no {_BEGIN} … {_END}")
    return pattern.sub(lambda _: measured, page)


def committed() -> Bench | None:
    """The result, where there is one."""
    return Bench.load(RESULT) if RESULT.is_file() else None


def main() -> None:
    bench = committed()
    if bench is not None:
        FIGURE.write_text(figure(bench), encoding="utf-8")
        if any(exponent(by_width) for by_width in times_by_width(bench, _GROWING, _BATCH).values()):
            GROWTH.write_text(growth(bench, _GROWING, _BATCH), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), bench), encoding="utf-8")


if __name__ == "__main__":
    main()
