"""Tables in GitHub's Markdown, in which no name means anything but itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from understudy.results import Result

from .read.groups import Ablation, Group
from .read.published import published_notes
from .read.summary import counts
from .read.tables import ReportTable, ablation_table, cell_table, failure_table, group_table, published_table


def markdown_report(
    title: str, results: Sequence[Result], groups: Sequence[Group], rows: Sequence[Ablation]
) -> str:
    """All tables as one document."""
    parts = [f"# {escape_markdown(title)}", f"{len(results)} cells: {counts(results)}."]
    tables = [group_table(groups)]
    tables += [
        ablation_table(factor, [row for row in rows if row.factor == factor])
        for factor in dict.fromkeys(row.factor for row in rows)
    ]
    tables += [failure_table(results)]
    for table in tables:
        if table.rows:
            parts += [f"## {table.title}", markdown(table)]
    for problem in dict.fromkeys(group.problem for group in groups):
        table = published_table(problem, groups)
        if table.rows:
            parts += [f"## {escape_markdown(table.title)}", markdown(table)]
            parts += [_bullet_list(published_notes(problem.network, problem.data))]
    parts += ["## Every cell", markdown(cell_table(results))]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(table: ReportTable) -> str:
    """One table."""
    heads = [escape_markdown(column.removeprefix(">")) for column in table.columns]
    rules = ["---:" if column.startswith(">") else "---" for column in table.columns]
    body = ([escape_markdown(entry.text) for entry in row] for row in table.rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rules, *body))


def escape_markdown(text: str) -> str:
    """Text that stays in its table cell and means nothing to Markdown or to HTML."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\|`*\[\]~])", r"\\\1", text)
    return re.sub(r"\s+", " ", text).strip()


def _bullet_list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)
