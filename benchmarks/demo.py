"""What `make demo` comes to: the whole of it in a new folder, once for every seed; and the page that says so.

python benchmarks/demo.py [--seeds 3] [--write]
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
from collections.abc import Sequence
from pathlib import Path

from measure import RESULTS, write
from understudy._util.quantities import format_bytes
from understudy._util.records import from_plain, to_plain
from understudy.comparisons import Comparison, Role
from understudy.report.read.comparison import ROLES, called, claims

ROOT = Path(__file__).parent.parent
_BEGIN, _END = "<!-- demo -->", "<!-- end of demo -->"
_NOTHING = "No result is committed yet.\n"


def demonstrated(seed: int) -> tuple[Comparison, float]:
    """One run from nothing, and the seconds of it, importing included."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        command = [sys.executable, "-m", "understudy", "demo", "--seed", str(seed), "--out", str(out)]
        subprocess.run(command, check=True)
        return Comparison.load(out), round(time.monotonic() - started, 1)


def section(runs: Sequence[Comparison]) -> str:
    """The table, of the seeds the mean error and the median of the best times, and what it comes to."""
    if not runs:
        return _NOTHING
    batches = [call.batch for call in runs[0].of("original").calls]
    heads = ["network", "parameters", "ONNX file", "test error", *(f"batch {batch}" for batch in batches)]
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
        *(f"{ms:.2f} ms" for ms in _times(runs, role)),
        *([""] * (0 if same[0].calls else len(runs[0].of("original").calls))),
    ]
    return f"| {' | '.join(cells)} |"


def _times(runs: Sequence[Comparison], role: Role) -> list[float]:
    """Milliseconds for each batch."""
    calls = [run.of(role).calls for run in runs]
    return [statistics.median(call.best_ms for call in same) for same in zip(*calls, strict=True)]


def _error(runs: Sequence[Comparison], role: Role) -> float:
    return statistics.mean(run.of(role).error for run in runs)


def _said(runs: Sequence[Comparison]) -> list[str]:
    """The student against the others, in words that follow from the numbers."""
    batches = [call.batch for call in runs[0].of("original").calls]
    student, whole = _times(runs, "student"), _times(runs, "original")
    quicker = [
        f"{slow / quick:.1f} times as quick with batch {batch}"
        for slow, quick, batch in zip(whole, student, batches, strict=True)
    ]
    lines = [
        f"Against the original: {', '.join(quicker)}; "
        f"{_error(runs, 'student') - _error(runs, 'original'):+.1f} points of error.",
    ]
    for role in (one.role for one in runs[0].rivals):
        ratios = [
            f"{mine / other:.1f} times its time with batch {batch}"
            for mine, other, batch in zip(student, _times(runs, role), batches, strict=True)
        ]
        lines.append(
            f"Beside {ROLES[role]} the student takes {', '.join(ratios)}, at "
            f"{_error(runs, 'student') - _error(runs, role):+.1f} points of error."
        )
    lines.append(f"{len(runs)} seeds and {runs[0].test_samples} test images: a few tenths say nothing.")
    return lines


def filled(page: str, runs: Sequence[Comparison]) -> str:
    """A page with everything between its two marks as the result says."""
    pattern = re.compile(f"(?<={re.escape(_BEGIN)}\n\n).*?(?=\n{re.escape(_END)})", re.DOTALL)
    return pattern.sub(lambda _: section(runs), page)


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
    arguments = parser.parse_args()
    made = [demonstrated(seed) for seed in range(arguments.seeds)]
    runs = [found for found, _ in made]
    for found, seconds in made:
        lost = [claim.what for claim in claims(found) if not claim.is_held]
        print(f"seed {found.seed}: {seconds} s, not held: {', '.join(lost) or 'nothing'}")
    print(section(runs))
    if arguments.write:
        print(write("demo", {"seconds": [seconds for _, seconds in made], "runs": to_plain(runs)}))
        for page in pages():
            page.write_text(filled(page.read_text(encoding="utf-8"), runs), encoding="utf-8")


if __name__ == "__main__":
    main()
