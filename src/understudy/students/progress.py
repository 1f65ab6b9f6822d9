"""A bar on a terminal for what lasts; nothing at all for what does not, or where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

PATIENCE_SECONDS = 2.0
T = TypeVar("T")


def shown(items: Sequence[T], label: str) -> Iterator[T]:
    """The items one by one; a bar appears on stderr once they have taken two seconds, and goes at the end."""
    start = time.monotonic()
    done = 0
    items_left = iter(items)
    for item in items_left:
        yield item
        done += 1
        if time.monotonic() - start > PATIENCE_SECONDS and sys.stderr.isatty():
            break
    if done < len(items):
        yield from _with_bar(items_left, label, done, len(items))


def _with_bar(items: Iterator[T], label: str, done: int, total: int) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total, completed=done)
        for item in items:
            yield item
            progress.advance(task)
