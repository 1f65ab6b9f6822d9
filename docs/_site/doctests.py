"""Docstrings for the site: an example that begins with >>> becomes a block of code."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Fences the examples of every docstring, so that Markdown does not take them for quotations."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """One object, once it was read."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring whose paragraphs of examples stand between fences."""
    return re.sub(r"(?m)^>>> (?:.+\n?)+", lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
