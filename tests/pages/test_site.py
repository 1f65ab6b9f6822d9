"""The site builds without a warning, needs nothing from elsewhere, and shows what exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import PAGES, ROOT

import demo
import gallery
import hooks


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built in a folder of its own."""
    pytest.importorskip("material", reason="needs the extra docs")
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
    return folder


def test_every_page_is_there_and_so_is_llms_txt(site: Path) -> None:
    for page in PAGES:
        if page.startswith("docs/"):
            name = Path(page).stem
            assert (site / ("" if name == "index" else name) / "index.html").is_file(), page
    assert (site / "llms.txt").read_bytes() == (ROOT / "docs" / "llms.txt").read_bytes()
    assert not [*site.rglob("*.py")]


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    tags = r"(?:script|img|iframe|link(?=[^>]*rel=.?stylesheet))"
    fetching = re.compile(rf"<{tags}[^>]*(?:src|href)=.?(?:https?:)?//[^>]*>")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not fetching.findall(text), page
        assert 'data-md-component="source"' not in text  # its script asks the repository's host


def test_the_reference_shows_examples_as_code(site: Path) -> None:
    page = (site / "reference" / "index.html").read_text(encoding="utf-8")
    assert "<blockquote>" not in page
    assert 'id="understudy.plan"' in page


def test_a_report_is_shown_where_it_exists() -> None:
    page = "See [it](../examples/a.py).\n<!-- report: study -->\n<!-- reports -->\n"
    link = "See [it](https://github.com/understudy/understudy/blob/main/examples/a.py).\n"
    assert hooks.completed(page, []) == f"{link}\nNo report is published yet.\n"
    shown = hooks.completed(page, [Path("reports/study.html"), Path("reports/small_demo.html")])
    assert shown.count('src="../reports/study.html"') == 2
    assert shown.count('title="Report: small demo"') == 1


def test_a_file_is_shown_as_it_is() -> None:
    shown = hooks.completed("<!-- file: examples/shared_rows.py -->", [])
    source = (ROOT / "examples" / "shared_rows.py").read_text(encoding="utf-8")
    assert shown == f'```python title="examples/shared_rows.py"\n{source.rstrip()}\n```'


def test_links_between_the_files_of_the_repository_hold() -> None:
    for page, text in PAGES.items():
        folder = (ROOT / page).parent
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" not in target:
                assert (folder / target).exists(), f"{page}: {target}"


def test_the_reports_in_the_gallery_are_those_of_their_results(tmp_path: Path) -> None:
    assert gallery.page(tmp_path) == gallery.PAGE.read_text(encoding="utf-8")
    assert demo.report() == demo.REPORT.read_text(encoding="utf-8")
    assert gallery.NAME in (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
