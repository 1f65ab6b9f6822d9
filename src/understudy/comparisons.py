"""Networks of one task side by side, comparison.json, as records: no torch is needed to read it.

What a clock decides is in `Call` and in whatever is called `seconds`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from understudy._util.provenance import Machine
from understudy._util.records import ADDED, read_record, write_record

FORMAT = 1
FILE = "comparison.json"
Role = Literal["original", "compressed", "student", "narrower", "taught"]
Recovered = Literal["kept", "undone", "none"]


@dataclasses.dataclass(frozen=True)
class Call:
    """Milliseconds of one call with so many inputs, in turns with the other networks."""

    batch: int
    best_ms: float
    median_ms: float
    rounds: int


@dataclasses.dataclass(frozen=True)
class Contender:
    """One network: what it is, what it costs, how often it errs, how long it took to make, how long it takes.

    `compressed` is the student before any training: of its size, and not timed again.
    """

    role: Role
    name: str
    params: int
    bytes: int  # of the exported file
    error: float  # percent of the test inputs
    seconds: float  # from nothing
    calls: tuple[Call, ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An original, its student, and dense networks of the student's size."""

    understudy: str  # the version that wrote it
    commit: str | None
    machine: Machine
    runtime: str  # that the calls were timed in
    data: str
    test_samples: int
    seed: int
    contenders: tuple[Contender, ...]
    # Whether the student was trained, and is the one from after it.
    recovery: Recovered = dataclasses.field(default="kept", metadata=ADDED)

    def __post_init__(self) -> None:
        roles = [one.role for one in self.contenders]
        if len(set(roles)) < len(roles) or not {"original", "compressed", "student", "narrower"} <= {*roles}:
            raise ValueError(f"of each network one is needed, not {', '.join(roles) or 'none'}")
        timed = {tuple(call.batch for call in one.calls) for one in self.contenders if one.calls}
        if len(timed) != 1 or not self.of("student").calls or not self.of("original").calls:
            raise ValueError("the networks are not timed with the same batches")

    def of(self, role: Role) -> Contender:
        """The network in this role."""
        return next(one for one in self.contenders if one.role == role)

    @property
    def rivals(self) -> tuple[Contender, ...]:
        """The dense networks of the student's size."""
        return tuple(one for one in self.contenders if one.role in ("narrower", "taught"))

    def save(self, folder: Path) -> None:
        """Write comparison.json, whole or not at all."""
        write_record(folder / FILE, self, FORMAT)

    @classmethod
    def load(cls, folder: str | Path) -> Comparison:
        """Read comparison.json of a folder; a ValueError says what is wrong with another file."""
        return read_record(cls, Path(folder) / FILE, FORMAT)
