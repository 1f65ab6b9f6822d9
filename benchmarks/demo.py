"""What `make demo` comes to: the whole of it in a new folder, once for every seed, and the time it takes.

python benchmarks/demo.py [--seeds 3] [--write]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import write
from understudy._util.quantities import format_bytes
from understudy._util.records import from_plain, to_plain
from understudy.comparisons import Comparison, Role
from understudy.report.read.comparison import ROLES, claims


def demonstrated(seed: int) -> tuple[Comparison, float]:
    """One run from nothing, and the seconds of it, importing included."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        command = [sys.executable, "-m", "understudy", "demo", "--seed", str(seed), "--out", str(out)]
        subprocess.run(command, check=True)
        return Comparison.load(out), round(time.monotonic() - started, 1)


def rows(runs: Sequence[dict[str, Any]]) -> list[str]:
    """The table of the README: of the seeds, the mean error and the median of the best times."""
    found = [from_plain(Comparison, run) for run in runs]
    return [_row(found, one.role) for one in found[0].contenders]


def _row(found: Sequence[Comparison], role: Role) -> str:
    same = [each.of(role) for each in found]
    errors = [one.error for one in same]
    spread = f" ± {statistics.stdev(errors):.1f}" if len(errors) > 1 else ""
    times = [
        f"{statistics.median(one.calls[number].best_ms for one in same):.2f} ms" if same[0].calls else ""
        for number, _ in enumerate(found[0].of("original").calls)
    ]
    size = format_bytes(round(statistics.mean(one.bytes for one in same)))
    name = f"{ROLES[role]}, {same[0].name}" if role in ("original", "narrower") else ROLES[role]
    return (
        " | ".join(
            [f"| {name}", f"{same[0].params:,}", size, f"{statistics.mean(errors):.1f}{spread} %", *times]
        )
        + " |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole of make demo, for several seeds.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/demo.json")
    arguments = parser.parse_args()
    made = [demonstrated(seed) for seed in range(arguments.seeds)]
    runs = [to_plain(found) for found, _ in made]
    for found, seconds in made:
        lost = [claim.what for claim in claims(found) if not claim.is_held]
        print(f"seed {found.seed}: {seconds} s, not held: {', '.join(lost) or 'nothing'}")
    print("\n".join(rows(runs)))
    if arguments.write:
        print(write("demo", {"seconds": [seconds for _, seconds in made], "runs": runs}))


if __name__ == "__main__":
    main()
