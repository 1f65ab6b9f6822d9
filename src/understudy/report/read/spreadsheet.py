"""Cells as CSV: plain numbers, and no text that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from .cells import Cell

FIELDS = (
    "name", "id", "role", "status", "reason", "network", "data", "transform", "budget", "attention", "decay",
    "seed", "params", "mult_adds", "ideal_mult_adds", "bytes", "top1", "top5", "images_per_second",
    "latency_ms", "seconds", "commit", "machine",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(cells: Sequence[Cell]) -> str:
    """A header and a row for every cell; errors in percent, unknown values empty."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    for cell in cells:
        values = vars(cell)
        writer.writerow([_safe(values[field]) for field in FIELDS])
    return stream.getvalue()


def _safe(value: object) -> object:
    """Text that begins like a formula gets an apostrophe, which spreadsheets hide."""
    if isinstance(value, str):
        value = value.replace("\x00", "")
        return f"'{value}" if value.lstrip(" ").startswith(_FORMULA) else value
    return value
