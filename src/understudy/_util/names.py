"""Names that become files and folders, or stand in a table: a checked alphabet and a checked length."""

from __future__ import annotations

import re

from .records import short

LONGEST = 220  # characters of the name of a file or a folder
LONGEST_LABEL = 500  # of what a network or a data set is called
_PART = 80  # characters of a part of a name
_BREAK = re.compile("[\\x00-\\x1f\\x7f\\ud800-\\udfff]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def check_name(label: str, name: str) -> None:
    """Raise ValueError unless a file or a folder may be called so, on any system and nowhere else.

    >>> check_name("name", "low_rank-ratio-0.1")
    """
    if len(name) > LONGEST or not _NAME.fullmatch(name) or name.endswith("."):
        raise ValueError(
            f"{label} {short(name)} is not a name of at most {LONGEST} letters, digits and _ . + -, "
            "the first of them no dot"
        )


def check_label(label: str, text: str) -> None:
    """Raise ValueError unless a text is short, and one line of whole characters."""
    if len(text) > LONGEST_LABEL or _BREAK.search(text):
        raise ValueError(f"{label} {short(text)} is not one line of at most {LONGEST_LABEL} characters")


def file_name(text: str) -> str:
    """Text as part of a file name: what not every file system takes becomes one dash; never too long.

    >>> file_name("timm:vit/b 16")
    'timm-vit-b-16'
    """
    kept = re.sub(r"[^A-Za-z0-9_.]+", "-", text)
    return re.sub(r"-*\.?-+\.*", "-", kept).strip("-.")[:_PART]
