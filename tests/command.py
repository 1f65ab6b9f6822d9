"""The command, run in this process."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run of the command left behind."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The output with every run of blanks and line ends made one blank."""
        return " ".join(self.out.split())


Run = Callable[..., Result]
