"""What all commands share: the application itself, how they print, how they read NAME=VALUE."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from typer.core import TyperCommand

from understudy import __version__
from understudy._util.text_tables import Shown, Table, plain_text

from .output import holdable, say

Function = TypeVar("Function", bound=Callable[..., Any])


class _Command(TyperCommand):
    """A command whose help is laid out anew by the terminal, not where its docstring ends its lines."""

    def __init__(self, *arguments: Any, help: str | None = None, **options: Any) -> None:
        text = inspect.cleandoc(help or "")
        super().__init__(*arguments, help=re.sub(r"(?<!\n)\n(?!\n)", " ", text), **options)


class _App(typer.Typer):
    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """As of any typer, of that class."""
        return super().command(name, **{"cls": _Command, **options})


app = _App(
    help="Replace the linear parts of a network by structured stand-ins; count truthfully what they cost; "
    "train them with the original as teacher.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)
    ] = False,
) -> None:
    if version:
        say(__version__)
        raise typer.Exit


def show(what: Table | Shown | str) -> None:
    """Print a table or a text."""
    console = Console()
    made: Table | str = what.table() if isinstance(what, Shown) else what
    made = made.rewritten(holdable) if isinstance(made, Table) else holdable(made)
    if console.is_terminal:
        console.print(made, highlight=False)
    else:  # a file or a pipe: as wide as it is, or as COLUMNS says, and no line padded
        say(plain_text(made))


def assignment(given: list[str] | None) -> str | dict[str, str] | None:
    """What `--transform` was given: nothing, one NAME for all, or PATTERN=NAME for some."""
    if not given or (len(given) == 1 and "=" not in given[0]):
        return given[0] if given else None
    for one in given:
        if "=" not in one:
            raise ValueError(
                f"--transform {one} beside others: give each a pattern, such as '*.conv2={one}', or '*={one}'"
            )
    return pairs("--transform", given)


def pairs(flag: str, given: list[str]) -> dict[str, str]:
    """What a flag that takes NAME=VALUE was given, as a dictionary."""
    found = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"{flag} {pair!r} is not NAME=VALUE")
        found[name] = value
    return found


def sizes(shape: str) -> tuple[int, ...]:
    """What `--input` was given: the shape of one sample."""
    try:
        found = tuple(int(size) for size in shape.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise ValueError(f"--input {shape!r} is not a shape such as 3,224,224")
    return found
