"""What `make demo` comes to: the whole of it in a new folder, once for every seed; and the pages that say so.

python benchmarks/demo.py [--seeds 3] [--write]
python benchmarks/demo.py --keep runs/demo

A finished demo, the first of these or the one in a folder, is kept in results/demo; its page is
docs/reports/demo.html.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from measure import RESULTS, write
from understudy._util.quantities import format_bytes
from understudy._util.records import from_plain, to_plain
from understudy.comparisons import Call, Comparison, Role
from understudy.compressions import Compressed
from understudy.report import write_comparison
from understudy.report.read.comparison import ROLES, called, claims

ROOT = Path(__file__).parent.parent
KEPT = RESULTS / "demo"
REPORT = ROOT / "docs" / "reports" / "demo.html"
TIMES: tuple[Callable[[Call], float], ...] = (lambda call: call.best_ms, lambda call: call.median_ms)
_BEGIN, _END = "<!-- demo -->", "<!-- end of demo -->"
_NOTHING = "No result is committed yet.\n"


def demonstrated(seed: int) -> tuple[Comparison, Compressed, float]:
    """One run from nothing, how its student was made, and the seconds of it, importing included."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        command = [sys.executable, "-m", "understudy", "demo", "--seed", str(seed), "--out", str(out)]
        subprocess.run(command, check=True)
        seconds = round(time.monotonic() - started, 1)
        return Comparison.load(out), Compressed.load(out / "student"), seconds


def section(runs: Sequence[Comparison]) -> str:
    """The table, over seeds the mean error and the median of all else, and what it comes to."""
    if not runs:
        return _NOTHING
    batches = [call.batch for call in runs[0].of("original").calls]
    heads = ["network", "parameters", "ONNX file", "test error", "made in"]
    heads += [f"batch {batch}" for batch in batches]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [_row(runs, one.role) for one in runs[0].contenders]
    return "\n".join([*lines, "", *_said(runs)]) + "\n"


def _row(runs: Sequence[Comparison], role: Role) -> str:
    same = [run.of(role) for run in runs]
    errors = [one.error for one in same]
    spread = f" ± {statistics.stdev(errors):.1f}" if len(errors) > 1 else ""
    label = called(runs[0], role)
    name = f"{label}, {same[0].name}" if role in ("original", "narrower") else label
    cells = [
        name,
        f"{same[0].params:,}",
        format_bytes(round(statistics.mean(one.bytes for one in same))),
        f"{statistics.mean(errors):.1f}{spread} %",
        f"{statistics.median(one.seconds for one in same):.0f} s",
        *(f"{best:.2f} / {median:.2f} ms" for best, median in zip(*_times(runs, role), strict=True)),
        *([""] * (0 if same[0].calls else len(runs[0].of("original").calls))),
    ]
    return f"| {' | '.join(cells)} |"


def _times(runs: Sequence[Comparison], role: Role) -> list[list[float]]:
    """Milliseconds for each batch, the best and the median."""
    by_batch = [*zip(*(run.of(role).calls for run in runs), strict=True)]
    return [[statistics.median(map(of, calls)) for calls in by_batch] for of in TIMES]


def _shares(runs: Sequence[Comparison], role: Role) -> list[str]:
    """The student's time as a multiple of another's for each batch, by the best calls and by the medians."""
    pairs = zip(_times(runs, "student"), _times(runs, role), strict=True)
    shares = [[mine / other for mine, other in zip(*pair, strict=True)] for pair in pairs]
    return [f"{best:.2f} / {median:.2f}" for best, median in zip(*shares, strict=True)]


def _error(runs: Sequence[Comparison], role: Role) -> float:
    return statistics.mean(run.of(role).error for run in runs)


def _said(runs: Sequence[Comparison]) -> list[str]:
    """The student against the others, whoever is ahead."""
    batches = [call.batch for call in runs[0].of("original").calls]
    heads = ["the student beside", *(f"its time, batch {batch}" for batch in batches), "its error"]
    others: list[Role] = ["original", *(one.role for one in runs[0].rivals)]
    rows = [
        f"| {ROLES[role]} | {' | '.join(f'{share} of it' for share in _shares(runs, role))} "
        f"| {_error(runs, 'student') - _error(runs, role):+.1f} points |".replace("-", "−")
        for role in others
    ]
    seeds = f"{len(runs)} seeds and {runs[0].test_samples} test images: a few tenths of a point say nothing."
    return [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *rows,
        "",
        f"Times are best / median. {seeds}",
    ]


def filled(page: str, runs: Sequence[Comparison]) -> str:
    """A page with everything between its two marks as the result says."""
    pattern = re.compile(f"(?<={re.escape(_BEGIN)}\n\n).*?(?=\n{re.escape(_END)})", re.DOTALL)
    return pattern.sub(lambda _: section(runs), page)


def keep(found: Comparison, student: Compressed) -> None:
    """Keep a finished demo, and draw its page."""
    KEPT.mkdir(exist_ok=True)
    found.save(KEPT)
    student.save(KEPT)
    REPORT.write_text(report(), encoding="utf-8")


def report() -> str:
    """The page of the demo that is kept, without links to the files beside it."""
    with tempfile.TemporaryDirectory() as folder:
        page = write_comparison(Comparison.load(KEPT), Compressed.load(KEPT), Path(folder), [])
        return page.read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Those that tell of the demo."""
    every = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [page for page in every if _BEGIN in page.read_text(encoding="utf-8")]


def committed() -> tuple[list[Comparison], list[float]]:
    """The result with the seconds of every run, or nothing."""
    path = RESULTS / "demo.json"
    if not path.is_file():
        return [], []
    found = json.loads(path.read_text(encoding="utf-8"))
    return [from_plain(Comparison, run) for run in found["runs"]], found["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole of make demo, for several seeds.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--write", action="store_true", help="save to benchmarks/results/demo.json, and tell it"
    )
    parser.add_argument("--keep", type=Path, help="only keep this finished demo, and draw its page")
    arguments = parser.parse_args()
    if arguments.keep is not None:
        keep(Comparison.load(arguments.keep), Compressed.load(arguments.keep / "student"))
        return
    made = [demonstrated(seed) for seed in range(arguments.seeds)]
    runs = [found for found, *_ in made]
    for found, _, seconds in made:
        lost = [claim.what for claim in claims(found) if not claim.is_held]
        print(f"seed {found.seed}: {seconds} s, not held: {', '.join(lost) or 'nothing'}")
    print(section(runs))
    if arguments.write:
        print(write("demo", {"seconds": [seconds for *_, seconds in made], "runs": to_plain(runs)}))
        keep(*made[0][:2])
        for page in pages():
            page.write_text(filled(page.read_text(encoding="utf-8"), runs), encoding="utf-8")


if __name__ == "__main__":
    main()
