"""A worker of the local engine: `python -m understudy.experiments.worker`, tasks in, how they end out.

Each line of its input is a task, each line of its output a message, both JSON. It ends at once when its input
closes: whoever started it is gone, by whatever signal, and a run must not be held by an orphan.
"""

from __future__ import annotations

import faulthandler
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, TextIO

from understudy._util.records import to_plain

from .task import Task, run_task


def main() -> None:
    """Serve until the input closes."""
    faulthandler.enable()
    # Messages keep the real output to themselves; whatever else a library prints goes to the log.
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    tasks: queue.Queue[Task] = queue.Queue()
    threading.Thread(target=_listen, args=(sys.stdin, tasks), daemon=True).start()
    serve(tasks, lambda message: _say(messages, message))


def _listen(stream: TextIO, tasks: queue.Queue[Task]) -> None:
    for line in stream:
        tasks.put(Task.from_dict(json.loads(line)))
    os._exit(0)  # in the midst of a step, too: the last checkpoint is whole


def _say(stream: TextIO, message: dict[str, Any]) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def serve(tasks: queue.Queue[Task], say: Callable[[dict[str, Any]], None]) -> None:
    """Do one task after another."""
    while True:
        task = tasks.get()
        status = run_task(task, lambda text: say({"progress": text}))
        say({"status": to_plain(status)})


if __name__ == "__main__":
    main()
