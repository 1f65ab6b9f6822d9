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
from . import bench, compress, demo, deploy, experiments, planning, training  # noqa: F401
from .common import app
from .output import leave_quietly, prepare_streams

__all__ = ["app", "main"]


def main() -> None:
    """Run the command.

    Bad input ends with a message and exit code 2, a diverged run with 1, a reader who leaves with 141.
    """
    prepare_streams()
    sys.path.insert(0, str(Path.cwd()))  # package.module:factory may lie in the folder where the command runs
    try:
        try:
            _run()
        finally:  # here, where it can be told that nobody reads, and not at the interpreter's end
            sys.stdout.flush()
            sys.stderr.flush()
    except BrokenPipeError:
        leave_quietly()
    except KeyboardInterrupt:
        sys.exit(130)
    except SystemExit as stop:  # the framework notes a closed pipe by itself, as an error
        if isinstance(stop.__context__, BrokenPipeError):
            leave_quietly()
        raise


def _run() -> None:
    try:
        app()
    except BrokenPipeError:
        raise
    except (ValueError, ImportError, OSError, UnknownOperationError) as error:
        _fail(str(error), code=2)
    except DivergedError as error:
        _fail(f"diverged: {error}", code=1)


def _fail(message: str, *, code: int) -> NoReturn:
    line = escape(" ".join(message.split()))
    Console(stderr=True).print(f"[bold red]error[/]: {line}", highlight=False, soft_wrap=True)
    sys.exit(code)
