"""The folder of a demonstration: what was asked, and how long each step has taken, over all interruptions."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from understudy._util.records import Json, RecordError, read_record, to_plain, write_record

FILE = "demo.json"
_FORMAT = 1
Tell = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class _State:
    asked: Mapping[str, Json]
    seconds: Mapping[str, float]  # by step


class DemoFolder:
    """A folder that is new, empty, or holds the same demonstration so far; anything else is a ValueError.

    With `force`, another demonstration that lies there is dropped.
    """

    def __init__(self, out: Path, asked: object, *, force: bool = False) -> None:
        self.out, self._asked = out, to_plain(asked)
        self.seconds: dict[str, float] = {}
        if out.exists() and not out.is_dir():
            raise ValueError(f"{out} is a file: choose another --out")
        if not out.is_dir() or not any(out.iterdir()):
            return
        if not (out / FILE).is_file():
            raise ValueError(f"{out} is not empty and holds no demo: choose another --out")
        if force:
            shutil.rmtree(out)
            return
        try:
            held = read_record(_State, out / FILE, _FORMAT)
        except RecordError as error:
            raise ValueError(f"{error}: choose another --out, or --force begins anew") from error
        changed = [
            f"{key} {held.asked.get(key)!r} → {value!r}"
            for key, value in self._asked.items()
            if held.asked.get(key) != value
        ]
        if changed:
            raise ValueError(
                f"{out} holds another demo ({'; '.join(changed)}): choose another --out, or --force begins "
                "anew"
            )
        self.seconds = dict(held.seconds)

    def begin(self) -> None:
        """Make the folder, and say whose it is."""
        self.out.mkdir(parents=True, exist_ok=True)
        self._write()

    @contextmanager
    def timed(self, step: str, report: Tell) -> Iterator[Tell]:
        """Count the time of a step; it is written whenever what is given back is told something."""
        began, before = monotonic(), self.seconds.get(step, 0.0)

        def note() -> None:
            self.seconds[step] = round(before + monotonic() - began, 2)
            self._write()

        def tell(line: str) -> None:
            report(line)
            note()

        try:
            yield tell
        finally:
            note()

    def _write(self) -> None:
        write_record(self.out / FILE, _State(self._asked, self.seconds), _FORMAT)
