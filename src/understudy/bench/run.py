"""Cells one after the other, each in a process of its own; what is measured already is not measured again."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from understudy._util.provenance import commit, this_machine
from understudy._util.records import from_plain, to_plain

from .record import Bench, Cell, Done, Roof


def run(
    cells: Sequence[Cell],
    path: Path,
    *,
    seconds: float = 20.0,
    limit: float | None = None,
    told: Callable[[Done], None] = lambda _: None,
) -> Bench:
    """Measure what `path` does not hold yet, each cell for about `seconds`, and write it after every cell.

    No cell begins once `limit` seconds have passed, and one that takes longer than what is left is stopped;
    the next call goes on from there. A cell that cannot be measured is kept with the reason.
    """
    if seconds <= 0:
        raise ValueError(f"{seconds} seconds a cell: more than 0 are needed")
    if path.exists():
        bench = Bench.load(path)
    else:
        bench = Bench(commit(), this_machine(), from_plain(Roof, _call("roof")))
        bench.save(path)
    began = time.monotonic()
    known = {done.cell for done in bench.done}
    for cell in cells:
        left = None if limit is None else limit - (time.monotonic() - began)
        if cell in known:
            continue
        if left is not None and left <= 0:
            break
        try:
            done = from_plain(Done, _call(json.dumps(to_plain(cell)), str(seconds), timeout=left))
        except subprocess.TimeoutExpired:
            break
        except subprocess.CalledProcessError as error:
            lines = [line for line in str(error.stderr).splitlines() if line.strip()]
            reason = lines[-1] if lines else f"the process ended with {error.returncode}"
            done = Done(cell, (), reason[:300])
        bench = dataclasses.replace(bench, done=(*bench.done, done))
        bench.save(path)
        told(done)
    return bench


# glibc gives freed memory of the size of images back to the system and is given it anew, page by page, at
# the next operation. Other allocators keep it, as the runtimes do beside which PyTorch is timed.
KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
}


def _call(*arguments: str, timeout: float | None = None) -> Any:
    """What the worker prints last."""
    finished = subprocess.run(
        [sys.executable, "-m", "understudy.bench.worker", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=timeout,
        env={**os.environ, **KEPT_MEMORY},
    )
    return json.loads(finished.stdout.strip().splitlines()[-1])
