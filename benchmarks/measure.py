"""What every benchmark records: where it ran, and interleaved best-of timings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import understudy
from understudy._util.provenance import commit, this_machine
from understudy._util.records import to_plain
from understudy._util.timing import time_in_turns

RESULTS = Path(__file__).parent / "results"


def provenance() -> dict[str, Any]:
    """The commit, the version and the machine behind a result."""
    return {
        "commit": commit(),
        "understudy": understudy.__version__,
        "machine": to_plain(this_machine()),
    }


def best_of(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least time in ms of each function; they take turns, so that all meet the same noise."""
    taken = time_in_turns(functions, rounds=repeats)
    return {name: 1000 * timing.best for name, timing in taken.items()}


def write(name: str, result: Mapping[str, Any]) -> Path:
    """Save a result with its provenance as results/NAME.json."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"provenance": provenance(), **result}, indent=1) + "\n", encoding="utf-8")
    return path
