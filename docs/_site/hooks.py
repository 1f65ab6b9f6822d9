"""What the site has beyond its pages: links into the repository, whole files, and the reports that exist.

Pages are written so that they read well as plain Markdown too. A link that leaves `docs/` goes to the
repository; `<!-- file: PATH -->` is that file; `<!-- report: NAME -->` is `docs/reports/NAME.html`, and
`<!-- reports -->` are all reports that exist.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
REPORTS = ROOT / "docs" / "reports"
REPOSITORY = "https://github.com/understudy/understudy/blob/main/"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page as it goes to the site; called by mkdocs for each."""
    return completed(markdown, sorted(REPORTS.glob("*.html")))


def completed(markdown: str, reports: list[Path]) -> str:
    """A page with its marks filled in, where these reports exist."""
    shown = {report.stem: _framed(report) for report in reports}
    everything = "\n\n".join(shown.values()) or "No report is published yet."
    text = re.sub(r"\]\(\.\./(?!reports/)", f"]({REPOSITORY}", markdown)
    text = re.sub(r"<!-- file: (\S+) -->", lambda found: _file(found[1]), text)
    text = re.sub(r"<!-- report: (\w+) -->", lambda found: shown.get(found[1], ""), text)
    return text.replace("<!-- reports -->", everything)


def _framed(report: Path) -> str:
    """A report inside the page, and by itself."""
    title = report.stem.replace("_", " ")
    place = f"../reports/{report.name}"  # every page is a folder of its own on the site
    return (
        f'<p><strong>{title}</strong> · <a href="{place}">open it by itself</a></p>\n'
        f'<iframe class="report" src="{place}" title="Report: {title}" loading="lazy"></iframe>'
    )


def _file(path: str) -> str:
    """A file of the repository as a block of code."""
    source = (ROOT / path).read_text(encoding="utf-8").rstrip()
    language = {".py": "python", ".toml": "toml"}.get(Path(path).suffix, "text")
    return f'```{language} title="{path}"\n{source}\n```'
