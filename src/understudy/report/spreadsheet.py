"""Results as CSV: plain numbers, and no text that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from understudy.results import Result

FIELDS = (
    "name", "id", "role", "status", "reason", "network", "data", "transform", "budget", "attention", "decay",
    "seed", "params", "mult_adds", "ideal_mult_adds", "bytes", "top1", "top5", "images_per_second",
    "latency_ms", "seconds", "commit", "machine",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@")


def csv_text(results: Sequence[Result]) -> str:
    """A header and a row for every result; errors in percent, unknown values empty."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    for result in results:
        writer.writerow([_safe(value) for value in _values(result)])
    return stream.getvalue()


def _values(result: Result) -> tuple[object, ...]:
    """In the order of the fields."""
    costs, errors, speed = result.costs, result.errors, result.speed
    return (
        result.name, result.id, result.role, result.status.state, result.status.reason, result.network,
        result.data, result.structure, result.budget.label if result.budget else "", result.attention,
        result.decay, result.seed, result.params, result.mult_adds, result.ideal_mult_adds,
        costs.bytes if costs else None, errors.top1 if errors else None, errors.top5 if errors else None,
        speed.images_per_second if speed else None, speed.latency_ms if speed else None, result.seconds,
        result.commit, str(result.machine or ""),
    )  # fmt: skip


def _safe(value: object) -> object:
    """Text that begins like a formula gets an apostrophe, which spreadsheets hide."""
    if isinstance(value, str):
        shown = "".join(one if one.isprintable() else " " for one in value)  # no control character
        return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown
    return value
