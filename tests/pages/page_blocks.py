"""The pages that people read, and the blocks of code in them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
_FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code between fences."""

    page: str
    language: str  # empty where none is said: a block of command lines, or a tree of files
    text: str
    line: int  # of the page, where the text begins
    shown: str | None  # what stands in a block of text right below it: its output


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in turn."""
    text = PAGES[page]
    found = list(_FENCED.finditer(text))
    made = []
    for number, block in enumerate(found):
        after = found[number + 1] if number + 1 < len(found) else None
        is_output = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        shown = after[2] if after is not None and is_output else None
        made.append(Block(page, block[1], block[2], text.count("\n", 0, block.start()) + 2, shown))
    return made


def command_lines(page: str) -> list[str]:
    """The lines of its blocks that a shell would run, without what follows #."""
    shells = [block for block in blocks(page) if block.language in ("", "sh")]
    lines = [re.sub(r"\s+#.*", "", line) for block in shells for line in block.text.splitlines()]
    return [line for line in lines if line and not re.match(r"DIR/|\s|git clone …", line)]


def spans(page: str) -> list[str]:
    """What stands between back-ticks in its text, with line ends made blanks."""
    outside = _FENCED.sub("", PAGES[page])
    return [" ".join(found.split()) for found in re.findall(r"(?<!`)`([^`]+)`(?!`)", outside)]
