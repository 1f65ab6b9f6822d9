"""What a grid's file may hold: known keys, lists of one kind, settings that a recipe knows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from understudy._util.nearest import hint
from understudy._util.records import InputError
from understudy.planning.budget import METRICS, Budget
from understudy.planning.request import TransformChoice, assigned
from understudy.train import Recipe
from understudy.transforms import known_transforms
from understudy.transforms.dense import Dense

_DECIDED = {"network", "data", "seed", "transform", "request", "teacher", "plan", "name", *METRICS}
_TYPES = {bool: "true or false", int: "a whole number", str: "text"}


class GridError(InputError):
    """A grid that cannot be run as it is.

    >>> from understudy.experiments import make_grid
    >>> make_grid("mine", {"recipe": "demo", "student": {"ratio": 0.1}})
    Traceback (most recent call last):
    ...
    understudy.experiments.checks.GridError: a grid has no key 'student' (did you mean 'students'...
    """


def check_keys(where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse a key that means nothing, with the nearest that does."""
    for key in table:
        if key not in known:
            told = hint(key, known) or f"; it may have {', '.join(known)}"
            raise GridError(f"{where} has no key {key!r}{told}")


def as_table(where: str, value: Any) -> dict[str, Any]:
    """A table, or an error that says what is there instead."""
    if not isinstance(value, Mapping):
        raise GridError(f"{where} is {value!r}, not a table")
    return dict(value)


def as_settings(where: str, value: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Changes to the recipe, and the options among them, which only cells with a transform can take.

    What the grid itself decides is not among them.
    """
    table = as_table(where, value)
    for key in table:
        if key in _DECIDED:
            raise GridError(f"{where} sets {key!r}, which a grid decides by its own keys")
    options = as_table(f"{where} options", table.pop("options", {}))
    try:
        Recipe().replaced(table)
    except ValueError as error:
        raise GridError(f"{where}: {error}") from error
    return table, options


def as_blocks(key: str, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tables [[key]]; a single [key] counts as one."""
    value = table.get(key, [])
    return [as_table(f"[[{key}]]", block) for block in (value if isinstance(value, list) else [value])]


def as_list(key: str, value: Any, kind: type) -> list[Any]:
    """One value or a list of them, all of one kind; numbers may stand for text."""
    values = value if isinstance(value, list) else [value]
    for item in values:
        number = isinstance(item, int | float) and not isinstance(item, bool)
        finite = number and abs(item) <= sys.float_info.max  # neither inf nor nan
        fits = {bool: isinstance(item, bool), int: finite and item == int(item)}
        if not fits.get(kind, isinstance(item, str) or number):
            raise GridError(f"{key} holds {item!r}, not {_TYPES[kind]}")
    if not values:
        raise GridError(f"{key} is an empty list")
    return [kind(item) for item in values]


def as_turn(block: Mapping[str, Any]) -> int:
    """When the cells of a block are trained, counted from 0."""
    turn = block.get("turn", 0)
    if isinstance(turn, bool) or not isinstance(turn, int) or turn < 0:
        raise GridError(f"turn is {turn!r}, not a whole number from 0 up")
    return turn


def as_transforms(value: Any) -> list[TransformChoice]:
    """Names and tables of patterns, each checked; "all" is every transform but the dense one."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise GridError("transforms is an empty list")
    if values == ["all"]:  # the dense one has a single size
        return [name for name, transform in known_transforms().items() if transform is not Dense]
    for item in values:
        named = item.values() if isinstance(item, Mapping) else [item]
        if not all(isinstance(name, str) for name in named):
            raise GridError(
                f"transforms holds {item!r}, neither a name nor a table such as Linear = 'shuffle'"
            )
        assigned(item)
    return values


def as_budgets(block: Mapping[str, Any]) -> list[Budget]:
    """The budgets of a block, all of one metric."""
    metrics = [metric for metric in METRICS if metric in block]
    if len(metrics) != 1:
        got = " and ".join(metrics) or "none"
        raise GridError(f"[[students]] needs one of {', '.join(METRICS)}; it has {got}")
    [metric] = metrics
    values = block[metric] if isinstance(block[metric], list) else [block[metric]]
    if not values:
        raise GridError(f"{metric} is an empty list")
    return [Budget(metric, value) for value in values]
