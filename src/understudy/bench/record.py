"""What a benchmark measured, as records on disk: one file, written again after every cell."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Literal

from understudy._util.files import whole_file
from understudy._util.provenance import Machine
from understudy._util.quantities import format_count
from understudy._util.records import RecordError, as_table, from_plain, parse_json, to_plain

Runtime = Literal["eager", "compiled", "onnx", "openvino"]
Mode = Literal["inference", "training"]
DENSE = "dense"  # the subject that all others of a cell are compared with
_FORMAT, _VERSION = "understudy-bench", 2


@dataclasses.dataclass(frozen=True)
class Cell:
    """What is measured in one process: all its subjects, in turns."""

    what: str  # "conv", "tokens" or the name of a network
    width: int | None  # of a layer
    batch: int
    runtime: Runtime
    mode: Mode
    transforms: tuple[str, ...]  # each by its name, with the way of its convolutions as in "low_rank:inside"
    params: int | None = None  # of a network's students, at most
    ratio: float | None = None  # or a share of its parameters; of a layer's, too

    @property
    def name(self) -> str:
        """`tokens 1024 at 0.1 of the parameters, batch 32, eager, inference`."""
        return f"{self.budgeted}, batch {self.batch}, {self.runtime}, {self.mode}"

    @property
    def budgeted(self) -> str:
        """`wrn_28_10 at 1.20M parameters`: what is measured, and its budget."""
        size = self.what if self.width is None else f"{self.what} {self.width}"
        if self.params is not None:
            return f"{size} at {format_count(self.params)} parameters"
        return size if self.ratio is None else f"{size} at {self.ratio:.3g} of the parameters"


@dataclasses.dataclass(frozen=True)
class Measured:
    """One subject of a cell; what a runtime does not tell is None."""

    subject: str
    params: int
    mult_adds: int | None  # of one pass, all that does not depend on the input done ahead
    moved: int | None  # bytes that any way of computing a layer must read and write
    best_ms: float
    median_ms: float
    spread: float  # the middle half of the calls, as a share of the median
    calls: int
    channels_last: bool  # in which layout it was quickest, where there is a choice
    peak_bytes: int | None
    file_bytes: int | None


@dataclasses.dataclass(frozen=True)
class Roof:
    """What the machine can do, measured in the same run."""

    copy_gb_s: float
    gmac_s: float

    def time_ms(self, measured: Measured) -> float | None:
        """The least time of a layer: that of its mult-adds or of its bytes, whichever take longer."""
        if measured.mult_adds is None or measured.moved is None:
            return None
        return 1e3 * max(measured.mult_adds / (1e9 * self.gmac_s), measured.moved / (1e9 * self.copy_gb_s))


@dataclasses.dataclass(frozen=True)
class Row:
    """A subject beside the dense one of its cell."""

    cell: Cell
    measured: Measured
    dense: Measured
    roof: Roof

    @property
    def speedup(self) -> float:
        """How many times quicker, best against best."""
        return self.dense.best_ms / self.measured.best_ms

    @property
    def reduction(self) -> float | None:
        """How many times fewer mult-adds."""
        ours, theirs = self.measured.mult_adds, self.dense.mult_adds
        return theirs / ours if ours and theirs else None

    @property
    def ideal(self) -> float | None:
        """The speed-up to be had: the smaller of the mult-adds' and the roofline's."""
        if self.reduction is None:
            return None
        ours, theirs = self.roof.time_ms(self.measured), self.roof.time_ms(self.dense)
        return self.reduction if ours is None or theirs is None else min(self.reduction, theirs / ours)

    @property
    def gmac_s(self) -> float | None:
        """Mult-adds in a second, of those that structure needs."""
        if self.measured.mult_adds is None or self.cell.mode == "training":
            return None
        return self.measured.mult_adds / self.measured.best_ms / 1e6


@dataclasses.dataclass(frozen=True)
class Done:
    """A cell that was measured, or why it could not be."""

    cell: Cell
    subjects: tuple[Measured, ...]
    problem: str | None = None


@dataclasses.dataclass(frozen=True)
class Bench:
    """A whole benchmark, as far as it came."""

    commit: str | None
    machine: Machine
    roof: Roof
    done: tuple[Done, ...] = ()

    def rows(self) -> list[Row]:
        """Every subject beside the dense one, in the order in which cells were measured."""
        made = []
        for done in self.done:
            dense = next((one for one in done.subjects if one.subject == DENSE), None)
            if dense is not None:
                made += [Row(done.cell, one, dense, self.roof) for one in done.subjects if one is not dense]
        return made

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        content = {"format": _FORMAT, "version": _VERSION, **to_plain(self)}
        with whole_file(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Bench:
        """Read what `save` wrote; a ValueError says what is wrong with any other file."""
        try:
            content = as_table(parse_json(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path} is not a benchmark: {error}") from error
        if content.pop("format", None) != _FORMAT:
            raise ValueError(f"{path} is not a benchmark: the field 'format' is not {_FORMAT!r}")
        version = content.pop("version", None)
        if version != _VERSION:
            raise ValueError(f"{path} has version {version!r}; this understudy reads version {_VERSION}")
        try:
            return from_plain(cls, content)
        except RecordError as error:
            raise ValueError(f"{path} is not a benchmark: {error}") from error
