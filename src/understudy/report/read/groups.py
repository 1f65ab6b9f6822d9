"""Cells → groups over seeds, and pairs that differ in attention transfer or in CRS decay alone."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from .cells import Cell

# What is set together with a factor, and so may differ between the two cells of a pair.
_ATTENTION = ("attention", "taps")
_DECAY = ("decay", "decay_scope", "decay_overrides")


@dataclasses.dataclass(frozen=True)
class Task:
    """A network to be compressed and its data: errors are only comparable within one."""

    network: str
    data: str

    @property
    def label(self) -> str:
        """`wrn_28_10 on cifar10`."""
        return f"{self.network} on {self.data}" if self.data else self.network


@dataclasses.dataclass(frozen=True)
class Statistic:
    """Mean and sample standard deviation (None for one value) of n values."""

    mean: float
    deviation: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Statistic | None:
        """Of the values that are known; None when there is none."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))

    def text(self, digits: int = 1, *, sign: bool = False, unit: str = "") -> str:
        """`5.1 ± 0.2 (n=3)`; one value shows no ±."""
        number = self.number(digits, sign=sign) + unit
        return number if self.deviation is None else f"{number} (n={self.n})"

    def number(self, digits: int = 1, *, sign: bool = False) -> str:
        """`5.1 ± 0.2`."""
        mean = f"{self.mean:{'+' if sign else ''},.{digits}f}".replace("-", "−")
        return mean if self.deviation is None else f"{mean} ± {self.deviation:,.{digits}f}"


@dataclasses.dataclass(frozen=True)
class Group:
    """The cells that differ only in their seed."""

    task: Task
    cells: tuple[Cell, ...]

    @property
    def first(self) -> Cell:
        """Stands for what all have in common."""
        return self.cells[0]

    @property
    def finished(self) -> tuple[Cell, ...]:
        """Those with an error."""
        return tuple(cell for cell in self.cells if cell.finished)

    @property
    def label(self) -> str:
        """`low_rank 24k`, with what is switched off."""
        return short_label(self.first)

    @property
    def status(self) -> str:
        """`finished`, or how many are in which state."""
        states = [cell.status for cell in self.cells]
        if len(set(states)) == 1:
            return states[0]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    def statistic(self, value: Callable[[Cell], float | None]) -> Statistic | None:
        """Over the finished cells."""
        return Statistic.of(value(cell) for cell in self.finished)

    @property
    def error(self) -> Statistic | None:
        """Top-1 test error in percent."""
        return self.statistic(lambda cell: cell.top1)


@dataclasses.dataclass(frozen=True)
class Ablation:
    """The effect of one factor on the error: with − without, over seeds, all else equal."""

    factor: str  # "attention transfer" or "CRS decay"
    task: Task
    transform: str  # "baseline" for a dense network
    budget: str
    setting: str  # of the other factor
    without: Statistic | None
    with_: Statistic | None
    difference: Statistic | None  # None where a side did not finish
    note: str

    @property
    def label(self) -> str:
        """`low_rank 24k, CRS`."""
        return f"{self.transform} {short_budget(self.budget)}, {self.setting}"


def short_budget(budget: str) -> str:
    """`24k params` → `24k`; mult-adds keep their unit."""
    return budget.removesuffix("params").removesuffix("parameters").strip()


def short_label(cell: Cell) -> str:
    """What a point is called in a figure."""
    if cell.role == "teacher":
        return f"teacher {cell.network}"
    if cell.role == "baseline":
        words = ["baseline", short_budget(cell.budget) or cell.network, *(["AT"] if cell.attention else [])]
    else:
        off = [word for word, on in (("no AT", cell.attention), ("no CRS", cell.crs)) if not on]
        words = [cell.transform or cell.network, short_budget(cell.budget), *off]
    return " ".join(word for word in words if word)


def tasks_of(cells: Sequence[Cell]) -> dict[str, Task]:
    """The task of every cell, by name: that of its teacher, or of its network before it was narrowed."""
    networks = {cell.id: cell.network for cell in cells if cell.role == "teacher" and cell.id}
    taught: dict[str, set[str]] = {}
    for cell in cells:
        if cell.role != "baseline":
            taught.setdefault(cell.data, set()).add(cell.network)

    def network(cell: Cell) -> str:
        candidates = taught.get(cell.data, set())
        if cell.teacher in networks:
            return networks[cell.teacher]
        related = sorted(other for other in candidates if _family(other) == _family(cell.network))
        return cell.network if cell.network in candidates or not related else related[0]

    return {cell.name: Task(network(cell), cell.data) for cell in cells}


def _family(network: str) -> str:
    """A network's name without its width: `wrn_28_2.5` → `wrn_28`."""
    return re.sub(r"_[0-9.]+$", "", network)


def group_cells(cells: Sequence[Cell]) -> list[Group]:
    """Groups in the order in which their first cells appear, seeds rising."""
    tasks = tasks_of(cells)
    found: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        key = (tasks[cell.name], cell.role, cell.network, cell.transform, cell.budget)
        found.setdefault((*key, cell.attention, cell.decay, cell.settings), []).append(cell)
    return [
        Group(tasks[members[0].name], tuple(sorted(members, key=lambda cell: cell.seed)))
        for members in found.values()
    ]


def ablations(cells: Sequence[Cell]) -> list[Ablation]:
    """Every pair of settings that differ in attention transfer, or in CRS decay, alone."""
    tasks = tasks_of(cells)
    students = [(cell, tasks[cell.name]) for cell in cells if cell.role != "teacher"]
    return [
        *_ablate(students, "attention transfer", _ATTENTION, _attention_level, _decay_setting),
        *_ablate(students, "CRS decay", _DECAY, _decay_level, _attention_setting),
    ]


def _ablate(
    students: Sequence[tuple[Cell, Task]],
    factor: str,
    settings: Sequence[str],
    level: Callable[[Cell], str],
    other: Callable[[Cell], str],
) -> Iterator[Ablation]:
    """Match cells that have all but a factor's settings in common; level "" is without the factor."""
    matched: dict[tuple[Task, str, str, str, str], dict[str, dict[int, Cell]]] = {}
    for cell, task in students:
        name = cell.transform or "baseline"
        key = (task, name, cell.budget, other(cell), cell.settings_without(*settings))
        matched.setdefault(key, {}).setdefault(level(cell), {})[cell.seed] = cell
    for (task, transform, budget, setting, _), levels in matched.items():
        without = levels.pop("", {})
        for name, with_ in levels.items() if without else ():
            told = f"{setting}, {name}" if len(levels) > 1 else setting
            yield Ablation(factor, task, transform, budget, told, *_compare(with_, without))


def _attention_level(cell: Cell) -> str:
    return f"β {cell.attention:g}" if cell.attention else ""


def _decay_level(cell: Cell) -> str:
    """A dense network has no ratio to scale its decay by."""
    return f"by {cell.setting('decay_scope', 'layer')}" if cell.crs and cell.transform else ""


def _decay_setting(cell: Cell) -> str:
    if not cell.transform:
        return "dense"
    return "CRS" if cell.crs else "no CRS"


def _attention_setting(cell: Cell) -> str:
    return f"AT {cell.attention:g}" if cell.attention else "no AT"


def _compare(
    on: dict[int, Cell], off: dict[int, Cell]
) -> tuple[Statistic | None, Statistic | None, Statistic | None, str]:
    """without, with, with − without, and what is missing; only seeds on both sides make a difference."""
    pairs = [(off[seed], on[seed]) for seed in sorted(on) if seed in off]
    whole = [(a, b) for a, b in pairs if a.finished and b.finished]
    difference = Statistic.of(_difference(a, b) for a, b in whole)
    note = ", ".join(
        f"{cell.status} {side}, seed {cell.seed}"
        for pair in pairs
        for side, cell in zip(("without", "with"), pair, strict=True)
        if not cell.finished
    )
    without = Statistic.of(cell.top1 for cell in off.values() if cell.finished)
    with_ = Statistic.of(cell.top1 for cell in on.values() if cell.finished)
    return without, with_, difference, note


def _difference(without: Cell, with_: Cell) -> float | None:
    return None if without.top1 is None or with_.top1 is None else with_.top1 - without.top1
