"""The tables of a report: built once, written as Markdown, and by the page as HTML."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from understudy._util.quantities import format_bytes, format_count
from understudy.results import FAILURES, Result, Size

from .groups import Ablation, Group, Problem, Statistic
from .published import Published, published

NOTHING = "–"


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is shown, and what it sorts by: a number, or its own text."""

    text: str
    value: float | None = None


@dataclasses.dataclass(frozen=True)
class ReportTable:
    """Named columns, those of numbers marked by a leading `>`, and rows of entries that sort."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


COST_COLUMNS = (">parameters", ">mult-adds", ">ideal mult-adds", ">bytes")
_ASKED_COLUMNS = ("transform", "budget", "AT\N{NO-BREAK SPACE}β", "decay")
_MEASURED_COLUMNS = (">top-1 error %", ">top-5 error %", ">images/s")


def cell_table(results: Sequence[Result]) -> ReportTable:
    """A row for every cell."""
    rows = tuple(
        (
            Entry(result.name),
            Entry(result.status.state),
            *_asked(result),
            Entry(str(result.seed), result.seed),
            *_costs(result),
            number_entry(result.top1, 2),
            number_entry(top5(result), 2),
            number_entry(images_per_second(result), 0),
        )
        for result in results
    )
    columns = ("cell", "status", *_ASKED_COLUMNS, ">seed", *COST_COLUMNS, *_MEASURED_COLUMNS)
    return ReportTable("Every cell", columns, rows)


def group_table(groups: Sequence[Group]) -> ReportTable:
    """A row for every setting, seeds together."""
    several = len({group.problem for group in groups}) > 1
    rows = tuple(
        (
            *([Entry(group.problem.label)] if several else []),
            *_asked(group.first),
            *_costs((group.finished or group.results)[0]),
            _statistic(group.error, 2),
            _statistic(group.statistic(top5), 2),
            _statistic(group.statistic(images_per_second), 0),
            Entry(group.states),
        )
        for group in groups
    )
    columns = (*["problem"] * several, *_ASKED_COLUMNS, *COST_COLUMNS, *_MEASURED_COLUMNS, "status")
    return ReportTable("Seeds together", columns, rows)


def ablation_table(factor: str, rows: Sequence[Ablation]) -> ReportTable:
    """The effect of one factor: with − without, so that below 0 is better."""
    several = len({row.problem for row in rows}) > 1
    columns = (*["problem"] * several, "transform", "budget", "other setting", ">without", ">with")
    return ReportTable(
        f"With and without {factor}",
        (*columns, ">difference", "note"),
        tuple(
            (
                *([Entry(row.problem.label)] if several else []),
                Entry(row.structure),
                _budget(row.result.budget),
                Entry(row.setting),
                _statistic(row.without, 2),
                _statistic(row.with_, 2),
                _statistic(row.difference, 2, sign=True),
                Entry(row.note),
            )
            for row in rows
        ),
    )


def failure_table(results: Sequence[Result]) -> ReportTable:
    """Every cell that did not come to an end, with the reason."""
    rows = tuple(
        (
            Entry(result.name),
            Entry(result.status.state),
            Entry(result.status.reason or "no reason was recorded"),
        )
        for result in results
        if result.status.state in FAILURES
    )
    return ReportTable("Failures", ("cell", "status", "reason"), rows)


def published_table(problem: Problem, groups: Sequence[Group]) -> ReportTable:
    """What was published beside the setting of ours that compares with it."""
    rows = []
    for point in published(problem.network, problem.data):
        group = counterpart(point, [group for group in groups if group.problem == problem])
        ours = (group.finished or group.results)[0] if group else None
        rows.append(
            (
                Entry(point.label),
                Entry(point.source),
                count_entry(point.params),
                count_entry(point.mult_adds),
                number_entry(point.top1, 1),
                count_entry(ours.params if ours else None),
                count_entry(ours.mult_adds if ours else None),
                _statistic(group.error if group else None, 1),
            )
        )
    columns = ("network", "source", ">parameters", ">mult-adds", ">top-1 error %")
    ours_columns = (">our parameters", ">our mult-adds", ">our top-1 error %")
    return ReportTable(f"Published for {problem.label}", (*columns, *ours_columns), tuple(rows))


def counterpart(point: Published, groups: Sequence[Group]) -> Group | None:
    """Our setting that a published point compares with; attention transfer and CRS decay as in the paper."""
    if point.source != "paper":
        return None
    if not point.transform:
        return next((group for group in groups if group.first.role == "teacher"), None)
    fitting = [group for group in groups if point.compares_with(group.first)]
    return max(fitting, key=lambda group: (group.first.attention > 0, group.first.crs != ""), default=None)


def top5(result: Result) -> float | None:
    """Top-5 test error in percent."""
    return None if result.errors is None else result.errors.top5


def images_per_second(result: Result) -> float | None:
    """As measured in batches."""
    return None if result.speed is None else result.speed.images_per_second


def count_entry(count: int | None) -> Entry:
    """A count in few characters, which sorts by its value."""
    return Entry(format_count(count), count)


def number_entry(value: float | None, digits: int) -> Entry:
    """A number with so many digits behind the point."""
    return Entry(NOTHING if value is None else f"{value:,.{digits}f}", value)


def _asked(result: Result) -> tuple[Entry, Entry, Entry, Entry]:
    student = result.role == "student"
    structure = (result.structure or result.network) if student else f"{result.role} {result.network}"
    attention = Entry(f"{result.attention:g}" if result.attention else "off", result.attention)
    return (
        Entry(structure),
        _budget(result.budget),
        Entry(NOTHING) if result.role == "teacher" else attention,
        Entry((result.decay or NOTHING) if student else NOTHING),
    )


def _budget(budget: Size | None) -> Entry:
    return Entry(NOTHING) if budget is None else Entry(budget.label, budget.amount)


def _costs(result: Result) -> tuple[Entry, Entry, Entry, Entry]:
    size = None if result.costs is None else result.costs.bytes
    return (
        Entry(NOTHING if result.params is None else f"{result.params:,}", result.params),
        count_entry(result.mult_adds),
        count_entry(result.ideal_mult_adds),
        Entry(NOTHING if size is None else format_bytes(size), size),
    )


def _statistic(statistic: Statistic | None, digits: int, sign: bool = False) -> Entry:
    if statistic is None:
        return Entry(NOTHING)
    return Entry(statistic.text(digits, sign=sign), statistic.mean)
