"""What results fill in a page of the documentation stands between two marks."""

from __future__ import annotations

import re


def between_marks(page: str, name: str, text: str) -> str:
    """The page with this text between `<!-- NAME -->` and the next `<!-- end -->`, which begins a line."""
    found = re.search(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end -->)", page, re.DOTALL)
    if found is None:
        raise ValueError(f"the page has no <!-- {name} --> … <!-- end -->")
    return page[: found.start()] + text + page[found.end() :]
