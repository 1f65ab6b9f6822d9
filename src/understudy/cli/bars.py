"""Bars that show how far a compression is, and the time that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from understudy.train.checkpoint import Progress as Position

_STAGES, _ONCE = 4, 3  # that are told of every student, and of the original


def _lines(report: Callable[[str], None]) -> Callable[..., None]:
    """A line for every stage as it begins; of epochs training tells by itself."""
    told = ""

    def watch(what: str, *_: int) -> None:
        nonlocal told
        if what != told:
            report(what)
        told = what

    return watch


@contextmanager
def compression_bars(cells: int, epochs: int) -> Iterator[tuple[Any, Any, Any]]:
    """What hears words, every stage and every step of training: bars on a terminal, lines elsewhere."""
    console = Console(stderr=True)

    def report(line: str) -> None:
        console.print(escape(line), highlight=False, soft_wrap=True)

    if not console.is_terminal:
        yield report, _lines(report), lambda *_: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        whole = bar.add_task("compress", total=_STAGES * cells + _ONCE)
        training = bar.add_task("recover", visible=False)

        def watch(what: str, *_: int) -> None:
            bar.update(whole, description=escape(what), advance=1)

        def watch_training(position: Position, batches: int, loss: float) -> None:
            if position.step == 1:
                bar.reset(training)
            epoch = f"epoch {position.epoch + 1}/{epochs}, loss {loss:.3f}"
            total = batches * epochs
            bar.update(
                training,
                description=epoch,
                completed=position.step,
                total=total,
                visible=position.step < total,
            )

        yield report, watch, watch_training
