"""A compression's numbers → what is to read of it: the card and the page."""

from __future__ import annotations

from pathlib import Path

from understudy._util.files import whole_file
from understudy.compressions import FILE, Compressed

from .card import card
from .page.compression import compression_page


def write_compression(result: Compressed, folder: Path) -> None:
    """Write README.md, the card, and index.html, the page, beside compress.json and the students."""
    folders = [f"{student.folder}/" if student.folder else "" for student in result.students]
    files = [f"{place}{name}" for place in folders for name in ("student.safetensors", "plan.json")]
    page = compression_page(result, ["README.md", FILE, *files])
    for name, text in (("README.md", card(result)), ("index.html", page)):
        with whole_file(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
