"""Tables for a terminal, a pipe and a notebook, shared by `print(plan)` and the command."""

from __future__ import annotations

import abc
import dataclasses
import html
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable

_UNBOUNDED = 100_000  # columns of a pipe, which has no edge to wrap at
_NARROW = 8  # columns in which a text can still be read


@dataclasses.dataclass(frozen=True)
class Table:
    """Named columns, those of numbers marked by a leading `>`, and rows of text.

    Where there is too little room the `yielding` columns leave, in their order; a `note` is then written
    below the table. The first column is never broken and no number is cut: where there is still too little,
    columns of numbers leave from the right, and their names are told.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    caption: str = ""
    yielding: tuple[str, ...] = ()

    def __str__(self) -> str:
        return plain_text(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gone: tuple[str, ...] = ()
        while self._width(gone) > options.max_width and len(gone) < len(self.yielding):
            gone = self.yielding[: len(gone) + 1]
        numbers = [self._names[number] for number in self._kept(gone)[1:] if self._is_number(number)]
        cut: list[str] = []
        while numbers and self._width((*gone, *cut), wrapped=True) > options.max_width:
            cut.insert(0, numbers.pop())
        gone = (*gone, *cut)
        yield self._rich(gone)
        if cut:
            yield f"  no room for: {_escaped(', '.join(cut))}"
        notes = [name for name in gone if name == "note"]
        for row in self.rows if notes else ():
            note = row[self._names.index("note")]
            if note:
                yield f"  {_escaped(row[0])}: {_escaped(note)}"
        for line in self.caption.splitlines():
            yield f"[italic]{_escaped(line)}[/]"

    def rewritten(self, write: Callable[[str], str]) -> Table:
        """The same with every text put through `write`."""
        return Table(
            columns=tuple(map(write, self.columns)),
            rows=tuple(tuple(map(write, row)) for row in self.rows),
            title=write(self.title),
            caption=write(self.caption),
            yielding=tuple(map(write, self.yielding)),
        )

    @property
    def _names(self) -> list[str]:
        return [column.removeprefix(">") for column in self.columns]

    def _kept(self, gone: Sequence[str]) -> list[int]:
        return [number for number, name in enumerate(self._names) if name not in gone]

    def _is_number(self, number: int) -> bool:
        return self.columns[number].startswith(">")

    def _width(self, gone: Sequence[str], *, wrapped: bool = False) -> int:
        """Columns of a terminal that the table takes, with texts that are `wrapped` or as they are."""
        kept = self._kept(gone)
        widths = {number: self._widest(number) for number in kept}
        for number in kept[1:] if wrapped else ():
            if not self._is_number(number):
                widths[number] = min(widths[number], _NARROW)
        return sum(3 + width for width in widths.values()) + 1

    def _widest(self, number: int) -> int:
        from rich.cells import cell_len

        return max(cell_len(row[number]) for row in [self._names, *self.rows])

    def _rich(self, gone: Sequence[str]) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable

        made = RichTable(title=_escaped(self.title) or None, box=box.SIMPLE_HEAD, title_justify="left")
        kept = self._kept(gone)
        for number in kept:
            right = self._is_number(number)
            made.add_column(
                self._names[number],
                justify="right" if right else "left",
                no_wrap=right or number == 0,
                min_width=self._widest(number) if right or number == 0 else None,
                overflow="fold",
            )
        for row in self.rows:
            made.add_row(*(_escaped(row[number]) for number in kept))
        return made

    def html(self) -> str:
        """The table as HTML, for a notebook."""
        styles = [' style="text-align: right"' if column.startswith(">") else "" for column in self.columns]
        heads = "".join(f"<th{s}>{html.escape(n)}</th>" for n, s in zip(self._names, styles, strict=True))
        body = "".join(
            "<tr>"
            + "".join(f"<td{s}>{html.escape(cell)}</td>" for cell, s in zip(row, styles, strict=True))
            + "</tr>"
            for row in self.rows
        )
        caption = "<br>".join(html.escape(line) for line in self.caption.splitlines())
        return (
            f"<p><strong>{html.escape(self.title)}</strong></p>"
            f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table><p>{caption}</p>"
        )


class Shown(abc.ABC):
    """What shows itself as a table: printed, by rich, and in a notebook."""

    @abc.abstractmethod
    def table(self) -> Table:
        """The table."""

    def __str__(self) -> str:
        return str(self.table())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.table()

    def _repr_html_(self) -> str:
        return self.table().html()


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    caption: str = "",
    yielding: Sequence[str] = (),
) -> Table:
    """A table of any sequences."""
    return Table(tuple(columns), tuple(tuple(row) for row in rows), title, caption, tuple(yielding))


def plain_text(what: object) -> str:
    """What rich can print, as text: as wide as the terminal or COLUMNS says, else as wide as it is."""
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=output_width(), color_system=None).print(what, highlight=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n")


def output_width() -> int:
    """How wide lines may be: COLUMNS, or the terminal's width, or without bounds in a pipe or a file."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, AttributeError):  # no terminal, or no real file behind stdout
        return _UNBOUNDED


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
