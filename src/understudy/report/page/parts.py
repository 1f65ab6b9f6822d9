"""What the pages are put together from: their files, the policy that keeps them to themselves, tables."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from types import MappingProxyType

from understudy.report.figures.style import Style
from understudy.report.read.tables import Entry, ReportTable


def document(
    template: str, scripts: Sequence[str], looks: Mapping[str, Style], parts: Mapping[str, str]
) -> str:
    """A whole HTML file from a template, whose `{{name}}` are parts of HTML; its style and script are inside.

    Nothing but these may run or be loaded, wherever the page lies.
    """
    style = _file("page.css") + _series_css(looks)
    script = "(() => {\n" + "\n".join(_file(name) for name in scripts) + "})();\n"
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    whole = {**parts, "policy": escape(policy), "style": style, "script": script}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: whole[match[1]], _file(template))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a policy names the one script or style that may be used."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _series_css(looks: Mapping[str, Style]) -> str:
    return "".join(
        f".series-{number} {{ color: light-dark({look.light}, {look.dark}); }}\n"
        for number, look in enumerate(looks.values())
    )


def html_table(
    table: ReportTable,
    name: str,
    keys: Sequence[str] | None = None,
    bars: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """A table whose columns sort by a click; `keys` let the legend filter rows, `bars` are more columns."""
    heads = "".join(
        f"<th scope='col' aria-sort='none'{_aligned(column)}><button type='button'>"
        f"{escape(column.removeprefix('>'))}</button></th>"
        for column in table.columns
    ) + "".join(f"<th scope='col'>{escape(title)}</th>" for title in bars)
    body = "".join(
        f"<tr{_key(keys, number)}>"
        + "".join(
            f"<td{_aligned(column)}{_value(entry)}>{escape(entry.text)}</td>"
            for column, entry in zip(table.columns, row, strict=True)
        )
        + "".join(f"<td>{drawn[number]}</td>" for drawn in bars.values())
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    return (
        f"<div class='scroll' role='region' tabindex='0' aria-label='{escape(table.title)}'>"
        f"<table class='sortable' id='table-{name}'><caption>{escape(table.title)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _aligned(column: str) -> str:
    return " class='number'" if column.startswith(">") else ""


def _key(keys: Sequence[str] | None, number: int) -> str:
    return f" data-key='{escape(keys[number])}'" if keys else ""


def _value(entry: Entry) -> str:
    return "" if entry.value is None else f" data-value='{entry.value!r}'"
