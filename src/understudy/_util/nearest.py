"""Hints for a name that is not known: the nearest ones that are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names most like `name`, whatever its case; none where nothing is alike."""
    by_folded = {str(one).lower(): one for one in known}
    found = difflib.get_close_matches(str(name).lower(), by_folded, n=most, cutoff=0.4)
    return [by_folded[one] for one in found]


def hint(name: str, known: Iterable[str], most: int = 3) -> str:
    """` (did you mean 'low_rank' or 'shuffle'?)`, or nothing where nothing is alike."""
    found = nearest(name, known, most)
    return f" (did you mean {' or '.join(map(repr, found))}?)" if found else ""
