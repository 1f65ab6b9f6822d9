"""Results → groups over seeds, and pairs that differ in attention transfer or in CRS decay alone."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from understudy.results import Result

# What is set together with a factor, and so may differ between the two results of a pair.
_ATTENTION = ("attention", "taps")
_DECAY = ("decay", "decay_scope", "decay_overrides")
# What `wrn_16_2` has beside its family.
_WIDTH, _WIDTH_AND_DEPTH = re.compile(r"_[0-9.]+$"), re.compile(r"(_[0-9.]+)+$")


@dataclasses.dataclass(frozen=True)
class Problem:
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
    """The results that differ only in their seed."""

    problem: Problem
    results: tuple[Result, ...]

    @property
    def first(self) -> Result:
        """Stands for what all have in common."""
        return self.results[0]

    @property
    def finished(self) -> tuple[Result, ...]:
        """Those with an error."""
        return tuple(result for result in self.results if result.finished)

    @property
    def label(self) -> str:
        """`low_rank 24k`, with what is switched off."""
        return short_label(self.first)

    @property
    def states(self) -> str:
        """`finished`, or how many are in which state."""
        states = [result.status.state for result in self.results]
        if len(set(states)) == 1:
            return states[0]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))

    def statistic(self, value: Callable[[Result], float | None]) -> Statistic | None:
        """Over those that have finished."""
        return Statistic.of(value(result) for result in self.finished)

    @property
    def error(self) -> Statistic | None:
        """Top-1 test error in percent."""
        return self.statistic(lambda result: result.top1)


@dataclasses.dataclass(frozen=True)
class Ablation:
    """The effect of one factor on the error: with − without, over seeds, all else equal."""

    factor: str  # "attention transfer" or "CRS decay"
    problem: Problem
    result: Result  # stands for what both sides have in common
    setting: str  # of the other factor
    without: Statistic | None
    with_: Statistic | None
    difference: Statistic | None  # None where a side did not finish
    note: str

    @property
    def structure(self) -> str:
        """What stands in for the network's layers; `baseline` for a dense network."""
        return self.result.structure or "baseline"

    @property
    def label(self) -> str:
        """`low_rank 24k, CRS`."""
        budget = f" {self.result.budget.label}" if self.result.budget else ""
        return f"{self.structure}{budget}, {self.setting}"


def short_label(result: Result) -> str:
    """What a point is called in a figure."""
    budget = result.budget.label if result.budget else ""
    if result.role == "teacher":
        return f"teacher {result.network}"
    if result.role == "baseline":
        words = ["baseline", budget or result.network, *(["AT"] if result.attention else [])]
    else:
        off = [word for word, on in (("no AT", result.attention), ("no CRS", result.crs)) if not on]
        words = [result.structure or result.network, budget, *off]
    return " ".join(word for word in words if word)


def problems_of(results: Sequence[Result]) -> dict[str, Problem]:
    """The problem of every result, by name: its teacher's, or that of the network it is a smaller form of."""
    networks = {result.id: result.network for result in results if result.role == "teacher"}
    taught: dict[str, set[str]] = {}
    for result in results:
        if result.role != "baseline":
            taught.setdefault(result.data, set()).add(result.network)

    def network(result: Result) -> str:
        if result.teacher in networks:
            return networks[result.teacher]
        if result.form_of:
            return result.form_of
        candidates = taught.get(result.data, set())
        for family in (_WIDTH, _WIDTH_AND_DEPTH):  # a narrower network is nearer than a shallower one
            mine = family.sub("", result.network)
            related = sorted(other for other in candidates if family.sub("", other) == mine)
            if result.network not in candidates and related:
                return related[0]
        return result.network

    return {result.name: Problem(network(result), result.data) for result in results}


def group_results(results: Sequence[Result]) -> list[Group]:
    """Groups in the order in which their first results appear, seeds rising."""
    problems = problems_of(results)
    found: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        key = (problems[result.name], result.role, result.budget, result.deciding_but("seed"))
        found.setdefault(key, []).append(result)
    return [
        Group(problems[members[0].name], tuple(sorted(members, key=lambda result: result.seed)))
        for members in found.values()
    ]


def ablations(results: Sequence[Result]) -> list[Ablation]:
    """Every pair of settings that differ in attention transfer, or in CRS decay, alone."""
    problems = problems_of(results)
    students = [(result, problems[result.name]) for result in results if result.role != "teacher"]
    return [
        *_ablate(students, "attention transfer", _ATTENTION, _attention_level, _decay_setting),
        *_ablate(students, "CRS decay", _DECAY, _decay_level, _attention_setting),
    ]


def _ablate(
    students: Sequence[tuple[Result, Problem]],
    factor: str,
    settings: Sequence[str],
    level: Callable[[Result], str],
    other: Callable[[Result], str],
) -> Iterator[Ablation]:
    """Match results that have all but a factor's settings in common; level "" is without the factor."""
    matched: dict[tuple[object, ...], list[tuple[Result, Problem]]] = {}
    for result, problem in students:
        key = (problem, result.role, result.budget, other(result), result.deciding_but("seed", *settings))
        matched.setdefault(key, []).append((result, problem))
    for members in matched.values():
        first, problem = members[0]
        levels: dict[str, dict[int, Result]] = {}
        for result, _ in members:
            levels.setdefault(level(result), {})[result.seed] = result
        without = levels.pop("", {})
        for name, with_ in levels.items() if without else ():
            told = f"{other(first)}, {name}" if len(levels) > 1 else other(first)
            yield Ablation(factor, problem, first, told, *_compare(with_, without))


def _attention_level(result: Result) -> str:
    return f"β {result.attention:g}" if result.attention else ""


def _decay_level(result: Result) -> str:
    return f"by {result.crs}" if result.crs else ""


def _decay_setting(result: Result) -> str:
    if not result.structure:
        return "dense"
    return "CRS" if result.crs else "no CRS"


def _attention_setting(result: Result) -> str:
    return f"AT {result.attention:g}" if result.attention else "no AT"


def _compare(
    on: dict[int, Result], off: dict[int, Result]
) -> tuple[Statistic | None, Statistic | None, Statistic | None, str]:
    """without, with, with − without, and what is missing; only seeds on both sides make a difference."""
    pairs = [(off[seed], on[seed]) for seed in sorted(on) if seed in off]
    difference = Statistic.of(
        None if without.top1 is None or with_.top1 is None else with_.top1 - without.top1
        for without, with_ in pairs
    )
    note = ", ".join(
        f"{result.status.state} {side}, seed {result.seed}"
        for pair in pairs
        for side, result in zip(("without", "with"), pair, strict=True)
        if not result.finished
    )
    return (
        Statistic.of(result.top1 for result in off.values()),
        Statistic.of(result.top1 for result in on.values()),
        difference,
        note,
    )
