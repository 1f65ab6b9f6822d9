"""The `understudy` command before anything is imported: Ctrl-C in its first instant leaves no traceback."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended


def main() -> None:
    """Import the command, which takes seconds, and run it."""
    try:
        from understudy.cli import main as run
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()
