"""Where the command writes: what a stream cannot hold is spelt in ASCII, and a reader may leave early."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import unicodedata
from typing import NoReturn

CLOSED_PIPE = 141  # what a shell reports of a program whose reader left, as for `yes | head`
_HANDLER = "understudy"
_SPELLED = {
    "×": "x", "⊗": "(x)", "∘": "o", "⊙": "*", "·": "*", "±": "+-", "√": "sqrt ", "‖": "||", "∞": "inf",
    "→": "->", "⇄": "<->", "≤": "<=", "≥": ">=", "≈": "~", "…": "...", "⁄": "/", "“": '"', "”": '"', "’": "'",
    "⌊": "[", "⌈": "[", "⌋": "]", "⌉": "]", **dict.fromkeys("−–—─━", "-"),
}  # fmt: skip


def spelled(text: str) -> str:
    """Text without the characters that a stream cannot hold: what they look like, or what they are called.

    >>> spelled("3×3 16 → 32, σ⁻¹")
    '3x3 16 -> 32, sigma-1'
    """
    return "".join(_SPELLED.get(character) or _in_ascii(character) for character in text)


def _in_ascii(character: str) -> str:
    if unicodedata.combining(character):
        return ""
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        return name.split()[-1].lower()
    parts = unicodedata.normalize("NFKD", character)
    return "".join(part if part.isascii() else _SPELLED.get(part, "") for part in parts) or "?"


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    """What `str.encode` calls for characters that an encoding has not."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return spelled(error.object[error.start : error.end]), error.end


def prepare_streams() -> None:
    """Let whatever is printed, by whomever, come out on any output."""
    codecs.register_error(_HANDLER, _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def say(text: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def holdable(text: str) -> str:
    """Text as standard output can hold it, before it is laid out in columns."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, _HANDLER).decode(encoding)


def leave_quietly() -> NoReturn:
    """End where nobody reads on: whatever is still to be written goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(io.UnsupportedOperation):  # no file is behind it
            os.dup2(nowhere, stream.fileno())
    sys.exit(CLOSED_PIPE)
