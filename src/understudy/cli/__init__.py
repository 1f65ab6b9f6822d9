"""The `understudy` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape

from understudy.counting.operations import UnknownOperationError
from understudy.train import DivergedError

# Each adds its commands to the application.
from . import bench, compress, deploy, experiments, planning, training  # noqa: F401
from .common import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command; bad input ends with a message and exit code 2, a diverged run with 1."""
    sys.path.insert(0, str(Path.cwd()))  # package.module:factory may lie in the folder where the command runs
    try:
        app()
    except (ValueError, ImportError, OSError, UnknownOperationError) as error:
        _fail(str(error), code=2)
    except DivergedError as error:
        _fail(f"diverged: {error}", code=1)


def _fail(message: str, *, code: int) -> NoReturn:
    line = escape(" ".join(message.split()))
    Console(stderr=True).print(f"[bold red]error[/]: {line}", highlight=False, soft_wrap=True)
    sys.exit(code)
