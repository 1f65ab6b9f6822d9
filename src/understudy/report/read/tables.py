"""The tables of a report: built once, written as Markdown, and by the page as HTML."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from understudy._util.quantities import format_bytes, format_count, parse_count

from .cells import FAILURES, Cell
from .groups import Ablation, Group, Statistic, Task, short_budget
from .published import Published, published

NOTHING = "–"


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is shown, and what it sorts by: a number, or its own text."""

    text: str
    value: float | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """Named columns, those of numbers marked by a leading `>`, and rows of entries."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


COST_COLUMNS = (">parameters", ">mult-adds", ">ideal mult-adds", ">bytes")


def cell_table(cells: Sequence[Cell]) -> Table:
    """A row for every cell."""
    columns = (
        "cell",
        "status",
        "transform",
        "budget",
        "AT\N{NO-BREAK SPACE}β",
        "decay",
        ">seed",
        *COST_COLUMNS,
    )
    rows = tuple(
        (
            Entry(cell.name),
            Entry(cell.status),
            Entry(_transform(cell)),
            _budget(cell.budget),
            _attention(cell),
            Entry(_decay(cell)),
            Entry(str(cell.seed), cell.seed),
            *_costs(cell),
            _value(cell.top1, 2),
            _value(cell.top5, 2),
            _value(cell.images_per_second, 0),
        )
        for cell in cells
    )
    return Table("Every cell", (*columns, ">top-1 error %", ">top-5 error %", ">images/s"), rows)


def group_table(groups: Sequence[Group]) -> Table:
    """A row for every setting, seeds together."""
    several = len({group.task for group in groups}) > 1
    columns = ("task",) * several + ("transform", "budget", "AT\N{NO-BREAK SPACE}β", "decay", *COST_COLUMNS)
    rows = tuple(
        (
            *([Entry(group.task.label)] if several else []),
            Entry(_transform(group.first)),
            _budget(group.first.budget),
            _attention(group.first),
            Entry(_decay(group.first)),
            *_costs((group.finished or group.cells)[0]),
            _statistic(group.error, 2),
            _statistic(group.statistic(lambda cell: cell.top5), 2),
            _statistic(group.statistic(lambda cell: cell.images_per_second), 0),
            Entry(group.status),
        )
        for group in groups
    )
    title = "Seeds together"
    return Table(title, (*columns, ">top-1 error %", ">top-5 error %", ">images/s", "status"), rows)


def ablation_table(factor: str, rows: Sequence[Ablation]) -> Table:
    """The effect of one factor: with − without, so that below 0 is better."""
    several = len({row.task for row in rows}) > 1
    columns = ("task",) * several + ("transform", "budget", "other setting", ">without", ">with")
    return Table(
        f"With and without {factor}",
        (*columns, ">difference", "note"),
        tuple(
            (
                *([Entry(row.task.label)] if several else []),
                Entry(row.transform),
                _budget(row.budget),
                Entry(row.setting),
                _statistic(row.without, 2),
                _statistic(row.with_, 2),
                _statistic(row.difference, 2, sign=True),
                Entry(row.note),
            )
            for row in rows
        ),
    )


def failure_table(cells: Sequence[Cell]) -> Table:
    """Every cell that did not come to an end, with the reason."""
    rows = tuple(
        (Entry(cell.name), Entry(cell.status), Entry(cell.reason or "no reason was recorded"))
        for cell in cells
        if cell.status in FAILURES
    )
    return Table("Failures", ("cell", "status", "reason"), rows)


def published_table(task: Task, groups: Sequence[Group]) -> Table:
    """What was published beside the setting of ours that compares with it."""
    rows = []
    for point in published(task.network, task.data):
        group = counterpart(point, [group for group in groups if group.task == task])
        ours = (group.finished or group.cells)[0] if group else None
        rows.append(
            (
                Entry(point.label),
                Entry(point.source),
                _count(point.params),
                _count(point.mult_adds),
                _value(point.top1, 1),
                _count(ours.params if ours else None),
                _count(ours.mult_adds if ours else None),
                _statistic(group.error if group else None, 1),
            )
        )
    columns = ("network", "source", ">parameters", ">mult-adds", ">top-1 error %")
    ours_columns = (">our parameters", ">our mult-adds", ">our top-1 error %")
    return Table(f"Published for {task.label}", (*columns, *ours_columns), tuple(rows))


def counterpart(point: Published, groups: Sequence[Group]) -> Group | None:
    """Our setting that a published point compares with; attention transfer and CRS decay as in the paper."""
    if point.source != "paper":
        return None
    if not point.transform:
        return next((group for group in groups if group.first.role == "teacher"), None)
    fitting = [
        group
        for group in groups
        if group.first.params and point.compares_with(group.first.transform, group.first.params)
    ]
    return max(fitting, key=lambda group: (group.first.attention > 0, group.first.crs), default=None)


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown."""
    heads = [escape_markdown(column.removeprefix(">")) for column in table.columns]
    rules = ["---:" if column.startswith(">") else "---" for column in table.columns]
    body = ([escape_markdown(entry.text) for entry in row] for row in table.rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rules, *body))


def escape_markdown(text: str) -> str:
    """Text that stays in its table cell and means nothing to Markdown or to HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\|`*\[\]~])", r"\\\1", text)
    return re.sub(r"\s+", " ", text).strip()


def bullet_list(lines: Iterable[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def _transform(cell: Cell) -> str:
    if cell.role == "student":
        return cell.transform or cell.network
    return f"{cell.role} {cell.network}"


def _budget(budget: str) -> Entry:
    try:
        return Entry(short_budget(budget), parse_count(short_budget(budget)))
    except ValueError:
        return Entry(budget or NOTHING)


def _attention(cell: Cell) -> Entry:
    if cell.role == "teacher":
        return Entry(NOTHING)
    return Entry(f"{cell.attention:g}" if cell.attention else "off", cell.attention)


def _decay(cell: Cell) -> str:
    return (cell.decay or NOTHING) if cell.role == "student" else NOTHING


def _costs(cell: Cell) -> tuple[Entry, Entry, Entry, Entry]:
    size = NOTHING if cell.bytes is None else format_bytes(cell.bytes)
    return (
        Entry(NOTHING if cell.params is None else f"{cell.params:,}", cell.params),
        _count(cell.mult_adds),
        _count(cell.ideal_mult_adds),
        Entry(size, cell.bytes),
    )


def _count(count: int | None) -> Entry:
    return Entry(format_count(count), count)


def _value(value: float | None, digits: int) -> Entry:
    return Entry(NOTHING if value is None else f"{value:,.{digits}f}", value)


def _statistic(statistic: Statistic | None, digits: int, sign: bool = False) -> Entry:
    if statistic is None:
        return Entry(NOTHING)
    return Entry(statistic.text(digits, sign=sign), statistic.mean)
