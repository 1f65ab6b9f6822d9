"""Tables for a terminal, shared by `print(plan)` and the command."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", caption: str = ""
) -> Table:
    """A table whose columns marked with a leading `>` are aligned to the right."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=escape(title) or None, caption=escape(caption) or None, box=box.SIMPLE_HEAD)
    made.title_justify = made.caption_justify = "left"
    for column in columns:
        right = column.startswith(">")
        made.add_column(
            column.lstrip(">"), justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    for row in rows:
        made.add_row(*(escape(cell) for cell in row))
    return made


def render(made: Table, width: int = 140) -> str:
    """The table as plain text."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None).print(made)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).rstrip("\n")
