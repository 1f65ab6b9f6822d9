"""What a grid's file may hold: known keys, lists of one kind, settings that a recipe knows."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.planning.budget import METRICS
from understudy.train import Recipe

BUDGETS = METRICS
_DECIDED = {"network", "data", "seed", "transform", "teacher", "plan", "name", *BUDGETS}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class GridError(ValueError):
    """A grid that cannot be run as it is."""


def check_keys(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse a key that means nothing, with the nearest that does."""
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            raise GridError(f"{where} has no key {key!r}; the nearest is {near!r}")


def as_table(where: str, value: Any) -> dict[str, Any]:
    """A table, or an error that says what is there instead."""
    if not isinstance(value, Mapping):
        raise GridError(f"{where} is {value!r}, not a table")
    return dict(value)


def as_settings(where: str, value: Any) -> dict[str, Any]:
    """Changes to the recipe; what the grid itself decides is not among them."""
    table = as_table(where, value)
    for key in table:
        if key in _DECIDED:
            raise GridError(f"{where} sets {key!r}, which a grid decides by its own keys")
    try:
        Recipe().replaced(table)
    except ValueError as error:
        raise GridError(f"{where}: {error}") from error
    return table


def as_blocks(key: str, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tables [[key]]; a single [key] counts as one."""
    value = table.get(key, [])
    return [as_table(f"[[{key}]]", block) for block in (value if isinstance(value, list) else [value])]


def as_list(key: str, value: Any, kind: type) -> list[Any]:
    """One value or a list of them, all of one kind."""
    values = value if isinstance(value, list) else [value]
    for item in values:
        number = isinstance(item, int | float) and not isinstance(item, bool)
        finite = number and abs(item) <= sys.float_info.max  # neither inf nor nan
        fits = {bool: isinstance(item, bool), int: finite and item == int(item), float: finite}
        if not fits.get(kind, isinstance(item, str) or number):
            raise GridError(f"{key} holds {item!r}, not {_KINDS[kind]}")
    if not values:
        raise GridError(f"{key} is an empty list")
    return [kind(item) for item in values]
