"""A result file's content → Cell: checked once, so that the rest of the report can rely on it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FORMAT = 1
ROLES = ("teacher", "student", "baseline")
STATUSES = ("finished", "diverged", "failed", "unreachable", "running", "waiting")
FAILURES = ("diverged", "failed", "unreachable")
# Settings that name or place a run rather than decide how it is trained; the teacher may differ by seed.
_INCIDENTAL = ("name", "seed", "teacher", "workers", "checkpoint_seconds")


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One point of a learning curve; errors in percent."""

    epoch: int
    train_error: float | None
    test_error: float | None


@dataclasses.dataclass(frozen=True)
class Cell:
    """One network of a sweep: what was asked, how it went, what it costs. None is what is not known (yet)."""

    name: str
    id: str
    role: str
    status: str
    reason: str
    network: str
    data: str
    transform: str  # "" for a dense network
    budget: str
    attention: float  # β of attention transfer; 0 is off
    decay: str
    seed: int
    teacher: str  # id of the teacher's cell
    params: int | None
    mult_adds: int | None  # as executed
    ideal_mult_adds: int | None
    bytes: int | None
    top1: float | None  # test error in percent
    top5: float | None
    images_per_second: float | None
    latency_ms: float | None
    seconds: float | None
    curve: tuple[Epoch, ...]
    commit: str
    machine: str
    settings: str  # the recipe without what is incidental, as canonical JSON

    @property
    def finished(self) -> bool:
        """Whether it trained to the end and has an error."""
        return self.status == "finished" and self.top1 is not None

    @property
    def crs(self) -> bool:
        """Whether weight decay is scaled by the compression ratio, and not excepted for this transform."""
        return self.decay == "crs" and f"{self.transform}=none" not in self.setting("decay_overrides", ())

    def setting(self, name: str, default: Any) -> Any:
        """One setting of the recipe."""
        return json.loads(self.settings).get(name, default)

    def settings_without(self, *names: str) -> str:
        """The settings but for some, to find the cells that differ in these alone."""
        kept = {key: value for key, value in json.loads(self.settings).items() if key not in names}
        return json.dumps(kept, sort_keys=True)


def parse_cells(results: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Every result as a Cell, in the order given; ValueError says which result is wrong and how."""
    cells: list[Cell] = []
    names: set[str] = set()
    for number, result in enumerate(results):
        if not isinstance(result, Mapping):
            raise ValueError(f"result {number} is a {type(result).__name__}, not a mapping")
        label = f"result {result.get('name') or number}"
        try:
            cell = _parse(result)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from error
        if cell.name in names:
            raise ValueError(f"{label}: two results have this name")
        names.add(cell.name)
        cells.append(cell)
    return cells


def _parse(result: Mapping[str, Any]) -> Cell:
    found = result.get("format")
    if isinstance(found, bool) or found != FORMAT:
        newer = isinstance(found, int) and not isinstance(found, bool) and found > FORMAT
        hint = "; a newer understudy wrote it, and can report it" if newer else ""
        raise ValueError(f"its format is {found!r}, and this version reads format {FORMAT}{hint}")
    planned, costs = _section(result, "planned"), _section(result, "costs")
    error, speed = _section(result, "error"), _section(result, "speed")
    recipe = _section(result, "recipe")
    settings = {key: value for key, value in recipe.items() if key not in _INCIDENTAL}
    return Cell(
        name=_text(result, "name", required=True),
        id=_text(result, "id"),
        role=_choice(result, "role", ROLES),
        status=_choice(result, "status", STATUSES),
        reason=_text(result, "reason"),
        network=_text(result, "network", required=True),
        data=_text(result, "data"),
        transform=_text(result, "transform"),
        budget=_text(result, "budget"),
        attention=_number(result, "attention") or 0.0,
        decay=_text(result, "decay"),
        seed=_whole(result, "seed") or 0,
        teacher=_text(result, "teacher"),
        params=_first(_whole(costs, "params"), _whole(planned, "params")),
        mult_adds=_first(_whole(costs, "mult_adds"), _whole(planned, "mult_adds")),
        ideal_mult_adds=_first(_whole(costs, "ideal_mult_adds"), _whole(planned, "ideal_mult_adds")),
        bytes=_whole(costs, "bytes"),
        top1=_number(error, "top1"),
        top5=_number(error, "top5"),
        images_per_second=_number(speed, "images_per_second"),
        latency_ms=_number(speed, "latency_ms"),
        seconds=_number(result, "seconds"),
        curve=tuple(_curve(result)),
        commit=_text(result, "commit"),
        machine=", ".join(f"{key} {value}" for key, value in _section(result, "machine").items()),
        settings=json.dumps(settings, sort_keys=True, default=str),
    )


def _curve(result: Mapping[str, Any]) -> Iterable[Epoch]:
    points = result.get("curve") or ()
    if not isinstance(points, Sequence) or isinstance(points, str):
        raise ValueError(f"curve is {points!r}, not a list")
    for number, point in enumerate(points):
        if not isinstance(point, Mapping):
            raise ValueError(f"curve[{number}] is {point!r}, not a mapping")
        epoch = _whole(point, "epoch")
        yield Epoch(
            number if epoch is None else epoch, _number(point, "train_error"), _number(point, "test_error")
        )


def _section(source: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = source.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is {value!r}, not a mapping or null")
    return value


def _text(source: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    value = source.get(key)
    if value is None or value == "":
        if required:
            raise ValueError(f"{key} is missing")
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, not text")
    return value


def _choice(source: Mapping[str, Any], key: str, legal: Sequence[str]) -> str:
    value = source.get(key)
    if value not in legal:
        raise ValueError(f"{key} is {value!r}, not one of {', '.join(legal)}")
    return str(value)


def _number(source: Mapping[str, Any], key: str) -> float | None:
    """A finite number; NaN and infinity, which a diverged run may hold, are unknown."""
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is {value!r}, not a number or null")
    return float(value) if math.isfinite(value) else None


def _whole(source: Mapping[str, Any], key: str) -> int | None:
    value = _number(source, key)
    if value is None:
        return None
    if value != int(value) or value < 0:
        raise ValueError(f"{key} is {source[key]!r}, not a whole number of at least 0")
    return int(source[key])


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
