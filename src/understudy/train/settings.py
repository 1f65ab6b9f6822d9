"""Settings as people write them, flat keys with text or TOML values, and what they are in a recipe."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from understudy._util.nearest import hint
from understudy._util.records import short
from understudy.planning.budget import METRICS, Budget, Metric
from understudy.planning.request import EVERYWHERE, Request

MOST = 1 << 62  # of a count or a seed: what comes of it is a whole number of 64 bits
# Each of these decides how large the student is; one goes over another.
SIZES = (*METRICS, "plan")
# The flat keys of a request; `seed` is the recipe's own.
REQUEST_KEYS = ("transform", *METRICS, "spatial", "include", "exclude", "options")


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, where a budget or a plan above takes the place of whichever is below."""
    replaces = any(key in SIZES for key in above)
    return {**{key: value for key, value in below.items() if not (replaces and key in SIZES)}, **above}


def changed_request(request: Request, changes: Mapping[str, Any]) -> Request:
    """A request with flat keys over it; an empty value takes a part away."""
    budgets = [key for key in METRICS if not _is_empty(changes.get(key))]
    if len(budgets) > 1:
        raise ValueError(f"give one of {', '.join(SIZES)}, not {' and '.join(budgets)}")
    parts = request.to_dict()
    for key, value in changes.items():
        if key in ("transform", "options"):
            parts[key] = _table(key, value)
        elif key in ("include", "exclude"):
            parts[key] = list(convert(key, value, tuple[str, ...]))
        elif key == "spatial":
            parts[key] = value
    budget = None if any(not _is_empty(changes.get(key)) for key in SIZES) else request.budget
    if budget is not None and budget.metric in changes:
        budget = None
    for key in budgets:
        budget = _budget(key, changes[key])
    return dataclasses.replace(Request.from_dict({**parts, "budget": None}), budget=budget, seed=request.seed)


def written(request: Request) -> dict[str, Any]:
    """A request by its flat keys, without those that say nothing."""
    named = [pattern for pattern, _ in request.transform]
    transform: Any = request.transform[0][1] if named == [EVERYWHERE] else dict(request.transform)
    asked = request.budget
    budget: dict[str, Any] = {} if asked is None else {asked.metric: asked.amount}
    parts = {
        "transform": transform,
        "include": request.include,
        "exclude": request.exclude,
        "options": dict(request.options),
    }
    return {
        **{key: value for key, value in parts.items() if value},
        **budget,
        "spatial": request.spatial,
    }


def _budget(metric: Metric, amount: Any) -> Budget:
    """A budget, or a ValueError that begins with its key."""
    try:
        return Budget(metric, amount)
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(metric) else f"{metric} {error}") from error


def _is_empty(value: Any) -> bool:
    """Nothing asked: a `scale` of 0 is something."""
    return value is None or value == ""


def _table(key: str, value: Any) -> Any:
    """A name, or a table; `a=b,c=d` in text is a table."""
    example = "Linear=shuffle" if key == "transform" else "indexing=independent"
    if isinstance(value, str) and "=" in value:
        return {name: text for name, _, text in (item.partition("=") for item in value.split(",") if item)}
    if isinstance(value, str) and (key == "transform" or not value):
        return value or {}
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f"{key} is {value!r}, not {'a name or ' if key == 'transform' else ''}"
                         f"a table such as {example}")  # fmt: skip
    return dict(value)


def convert(key: str, value: Any, wanted: Any, *, from_text: bool = True) -> Any:
    """A value from TOML, JSON or (unless `from_text` is off) text as the type of its field."""
    problem = ValueError(f"{key} is {short(value)}, not {_describe(wanted)}")
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise ValueError(f"{problem}{hint(str(value)[:60], get_args(wanted))}")
        return value
    if get_origin(wanted) is tuple:
        items = value
        if isinstance(value, str) and from_text:
            items = [item for item in value.split(",") if item]
        if not isinstance(items, list | tuple):
            raise problem
        return tuple(convert(key, item, get_args(wanted)[0], from_text=from_text) for item in items)
    text = (str,) if from_text or wanted is str else ()
    if wanted is bool:
        known = {"true": True, "false": False, True: True, False: False}
        if not isinstance(value, (bool, *text)) or value not in known:
            raise problem
        return known[value]
    numbers = (int,) if wanted is int else (int, float) if wanted is float or from_text else ()
    if isinstance(value, bool) or not isinstance(value, (*text, *numbers)):
        raise problem
    try:
        converted = wanted(value)
    except (ValueError, OverflowError):
        raise problem from None
    if wanted is int and abs(converted) > MOST:
        raise ValueError(f"{key} is {short(value)}, above {MOST}")
    if wanted is float and not math.isfinite(converted):
        raise problem
    return converted


def _describe(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        return f"one of {', '.join(map(str, get_args(wanted)))}"
    if get_origin(wanted) is tuple:
        return f"a list of {_describe(get_args(wanted)[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[wanted]
