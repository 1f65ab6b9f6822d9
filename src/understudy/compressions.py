"""What compressing a trained network leaves behind, compress.json, as records: no torch is needed to read it.

What a clock decides is in `Latency` and in whatever is called `seconds`; all else is the same on every
repetition with the same number of threads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from understudy._util.names import check_name
from understudy._util.provenance import Machine
from understudy._util.records import Json, RecordError, read_record, write_record

FORMAT = 1
FILE = "compress.json"


@dataclasses.dataclass(frozen=True)
class Footprint:
    """What a network costs; mult-adds, of one input, are None where an operation has no known price."""

    params: int
    mult_adds: int | None
    ideal_mult_adds: int | None  # with matrices formed ahead
    bytes: int


@dataclasses.dataclass(frozen=True)
class Quality:
    """How a network answers the test inputs.

    Percent of the answers; the mean cosine of its outputs and the original's. None is what cannot be told:
    accuracy without labels, agreement where outputs are no classes.
    """

    samples: int
    accuracy: float | None
    top5_accuracy: float | None
    agreement: float | None
    cosine: float


@dataclasses.dataclass(frozen=True)
class Latency:
    """Milliseconds for one input, best of several turns: the student's, and the original's between them."""

    student: float
    original: float
    threads: int

    @property
    def relative(self) -> float:
        """The student's in the original's: the two met the same noise, two students did not."""
        return self.student / self.original


@dataclasses.dataclass(frozen=True)
class Tried:
    """One thing that was tried; the error is of the outputs, relative, on inputs that were held back."""

    name: str
    error: float | None  # None: no finite number
    kept: bool


@dataclasses.dataclass(frozen=True)
class LayerShare:
    """One layer: the share of its parameters that is kept, and of its outputs' energy that is lost by it."""

    path: str
    shape: str
    setting: str  # `low_rank, rank 8, unfolded`, or `dense`
    dense_params: int
    params: int
    error: float | None  # None for a layer that never ran
    note: str

    @property
    def kept(self) -> float:
        """The share of the parameters."""
        return self.params / self.dense_params


@dataclasses.dataclass(frozen=True)
class Recovery:
    """Training with the original as teacher, and the student after it.

    It is kept where it brought the outputs nearer to the original's, on inputs that were held back; if not,
    the student is the one from before.
    """

    epochs: int
    learning_rate: float
    seconds: float
    quality: Quality
    kept: bool


@dataclasses.dataclass(frozen=True)
class Student:
    """One student: what was asked, what it costs, how it answers, and how it came to be."""

    name: str
    folder: str  # below that of compress.json; "" is the same
    transform: str
    budget: str
    costs: Footprint
    quality: Quality  # before any training
    latency: Latency
    steps: tuple[Tried, ...]
    layers: tuple[LayerShare, ...]
    remarks: tuple[str, ...]
    seconds: float
    recovery: Recovery | None = None

    @property
    def kept_recovery(self) -> Recovery | None:
        """The one that the network in the folder went through."""
        return self.recovery if self.recovery is not None and self.recovery.kept else None

    @property
    def final(self) -> Quality:
        """Of the network in the folder."""
        return (self.kept_recovery or self).quality


@dataclasses.dataclass(frozen=True)
class Refused:
    """A student that cannot be made, and why."""

    name: str
    transform: str
    budget: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Looked:
    """What the original was looked at with."""

    samples: int
    layers: int
    idle: tuple[str, ...]  # layers that never ran: fitted to their weights alone
    short: tuple[str, ...]  # layers that saw fewer vectors than they have dimensions: regularised


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A layer that was left alone, and why."""

    path: str
    shape: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Compressed:
    """A trained network and the students that were made of it."""

    understudy: str  # the version that wrote it
    commit: str | None
    machine: Machine
    network: str
    options: Mapping[str, Json]  # that the network was made with
    weights: str  # the name of the file, or "" for those that the network comes with
    weights_digest: str
    data: str
    input_shape: tuple[int, ...] | None  # of one input, with its batch of one; None where it is no tensor
    mean: tuple[float, ...]  # by which inputs are normalised; empty where they came as they are
    std: tuple[float, ...]
    seed: int
    original: Footprint
    quality: Quality  # of the original
    calibration: Looked
    skipped: tuple[Skipped, ...]
    students: tuple[Student, ...]
    refused: tuple[Refused, ...]
    notes: tuple[str, ...]
    seconds: float

    def __post_init__(self) -> None:
        if not self.students:
            raise ValueError("there is no student")

    @property
    def measure(self) -> str:
        """What a student is judged by: `accuracy`, or without labels `agreement`, or else `cosine`."""
        if self.quality.accuracy is not None:
            return "accuracy"
        return "agreement" if self.quality.agreement is not None else "cosine"

    @property
    def latency(self) -> float:
        """The original's, in milliseconds: the least that was met beside any student."""
        return min(student.latency.original for student in self.students)

    def score(self, quality: Quality) -> float:
        """That measure, in percent; a cosine is 100 where outputs point the same way."""
        if quality.accuracy is not None:
            return quality.accuracy
        return quality.agreement if quality.agreement is not None else 100 * quality.cosine

    def save(self, folder: Path) -> None:
        """Write compress.json, whole or not at all."""
        write_record(folder / FILE, self, FORMAT)

    @classmethod
    def load(cls, folder: str | Path) -> Compressed:
        """Read compress.json of a folder; a ValueError says what is wrong with another file."""
        path = Path(folder) / FILE
        found = read_record(cls, path, FORMAT)
        for student in found.students:
            try:
                check_name("the name", student.name)
                check_name("the folder", student.folder or student.name)
            except ValueError as error:
                raise RecordError(f"{path}: of a student, {error}") from error
        return found
