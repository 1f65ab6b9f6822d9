"""What every benchmark records: where it ran, and interleaved best-of timings."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

import understudy

RESULTS = Path(__file__).parent / "results"


def provenance() -> dict[str, Any]:
    """The commit, the versions and the machine behind a result."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    ).stdout.strip()
    return {
        "commit": commit or None,
        "understudy": understudy.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def best_of(functions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least time in ms of each function; they take turns, so that all meet the same noise."""
    for function in functions.values():
        function()
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], 1000 * (time.perf_counter() - start))
    return best


def write(name: str, result: Mapping[str, Any]) -> Path:
    """Save a result with its provenance as results/NAME.json."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"provenance": provenance(), **result}, indent=1) + "\n", encoding="utf-8")
    return path
