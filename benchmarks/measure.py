"""What every benchmark records: where it ran, interleaved best-of timings, and peaks of memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.profiler import ProfilerActivity, profile

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


def peak_bytes(run: Callable[[], object], held: Iterable[Tensor] = ()) -> int:
    """The most bytes of tensors alive at once on the CPU while `run` runs, with those `held` from before it.

    The allocator itself reports every allocation and release, those inside an operation too, so the number is
    exact and the same on every run. It does not see what was made before `run` go, nor what a library takes
    from the system by itself.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    results = record.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
    alive = peak = sum(storages.values())
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def write(name: str, result: Mapping[str, Any]) -> Path:
    """Save a result with its provenance as results/NAME.json."""
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"provenance": provenance(), **result}, indent=1) + "\n", encoding="utf-8")
    return path
