"""What `make demo` comes to: its sweep and its report in a new folder, the time of both, and the results.

python benchmarks/demo.py [--write]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import write
from understudy._util.records import to_plain
from understudy.experiments import read_results
from understudy.results import Result


def kept(result: Result) -> dict[str, Any]:
    """What docs/start.md quotes."""
    return {
        "name": result.name,
        "role": result.role,
        "network": result.network,
        "transform": result.structure,
        "status": result.status.state,
        "costs": to_plain(result.costs),
        "error": to_plain(result.errors),
        "speed": to_plain(result.speed),
        "seconds": result.seconds,
    }


def timed(*arguments: str) -> float:
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "understudy", *arguments], check=True)
    return round(time.monotonic() - started, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="The sweep and the report of make demo.")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/demo.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sweep_seconds = timed("sweep", "demo", "--out", folder, "--workers", "2")
        report_seconds = timed("report", folder)
        cells = [kept(result) for result in read_results(Path(folder))]
    print(f"sweep {sweep_seconds} s, report {report_seconds} s")
    if arguments.write:
        times = {"sweep_seconds": sweep_seconds, "report_seconds": report_seconds}
        print(write("demo", {**times, "cells": cells}))


if __name__ == "__main__":
    main()
