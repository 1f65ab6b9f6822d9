"""A sweep killed with kill -9 at random moments, and started again, against one that nothing disturbed.

    python benchmarks/sweep_resume.py [--grid digits] [--workers 2] [--kills 3] [--seed 0] [--write]

Both sweeps end with the same results, but for what a clock decides, and with the same bytes of every network.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import write
from understudy.experiments import read_results, sweep_status
from understudy.results import Result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--grid", default="digits")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="save results/sweep_resume.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = compare(Path(folder), options)
    for name, value in result.items():
        if name != "cells":
            print(f"{name}: {value}")
    if options.write:
        print(write("sweep_resume", result))
    sys.exit(0 if result["identical"] else 1)


def compare(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run both sweeps."""
    started = time.monotonic()
    finish(start(folder / "unbroken", options))
    seconds = time.monotonic() - started
    moments = random.Random(options.seed)
    kills = []
    for number in range(options.kills):
        process = start(folder / "broken", options)
        moment = moments.uniform(0.1, 0.5) * seconds
        try:
            process.wait(moment)
            sys.exit(f"the sweep ended before kill {number + 1}: choose another --seed")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        time.sleep(1)  # its workers end when they find it gone
        kills.append({"after_seconds": round(moment, 1), **standing(folder / "broken")})
        print(f"kill {number + 1}: {kills[-1]}", flush=True)
    finish(start(folder / "broken", options))
    unbroken, broken = outcome(folder / "unbroken"), outcome(folder / "broken")
    return {
        "identical": unbroken == broken,
        "differing": sorted(name for name in unbroken if unbroken[name] != broken.get(name)),
        "grid": options.grid,
        "workers": options.workers,
        "unbroken_seconds": round(seconds, 1),
        "kills": kills,
        "cells": {
            name: {
                "status": result.status.state,
                "test_error": result.top1,
                "params": result.costs and result.costs.params,
                "model_sha256": model,
            }
            for name, (result, model) in broken.items()
        },
    }


def start(out: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "understudy", "sweep", options.grid, "--out", str(out)]
    return subprocess.Popen(
        [*command, "--workers", str(options.workers)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": str(options.workers)},  # one for each worker
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait() != 0:
        sys.exit(f"the sweep ended with {process.returncode}")


def standing(out: Path) -> dict[str, Any]:
    """How far a killed sweep had come."""
    if not (out / "grid.json").exists():
        return {"finished": 0, "midway": {}}
    cells = sweep_status(out).cells
    begun = {cell.name: cell.epochs for cell in cells if (out / "runs" / cell.name).exists()}
    waiting = {cell.name for cell in cells if cell.status.state == "waiting"}
    return {
        "finished": sum(cell.status.state == "finished" for cell in cells),
        "midway": {name: f"{epochs} epochs" for name, epochs in begun.items() if name in waiting},
    }


def outcome(out: Path) -> dict[str, tuple[Result, str | None]]:
    """The results by name, without the clock and the state of the source, each with its network's digest."""
    found = {}
    for result in read_results(out):
        curve = tuple(dataclasses.replace(epoch, seconds=0.0) for epoch in result.curve)
        model = out / "runs" / result.name / "model.safetensors"
        digest = hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else None
        found[result.name] = (dataclasses.replace(result, commit="", speed=None, curve=curve), digest)
    return found


if __name__ == "__main__":
    main()
