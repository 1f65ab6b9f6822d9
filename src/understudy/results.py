"""What a sweep leaves behind, as records: experiments write them and the report reads them.

What a clock decides is in `Result.speed` and in the `seconds` of its curve; all else is the same on every
repetition.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from understudy._util.names import check_label
from understudy._util.provenance import Machine
from understudy._util.records import ADDED, InputError, Json, RecordError, from_plain, to_plain

FORMAT = 2  # of a result
Role = Literal["teacher", "student", "baseline"]
State = Literal["waiting", "running", "finished", "diverged", "failed", "unreachable"]
FAILURES: tuple[State, ...] = ("diverged", "failed", "unreachable")
SETTLED: tuple[State, ...] = ("finished", "diverged")  # a failed run may go well another time


class ResultsError(InputError):
    """Results that are not what this version reads."""


@dataclasses.dataclass(frozen=True)
class Status:
    """How a run stands, and why where it did not go well."""

    state: State
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Size:
    """The budget that was asked for: a metric and an amount to sort by, and a text to show."""

    metric: str
    amount: float
    label: str

    def __post_init__(self) -> None:
        check_label("metric", self.metric)
        check_label("label", self.label)


@dataclasses.dataclass(frozen=True)
class PlannedCosts:
    """What a network will cost, from its plan alone."""

    params: int
    mult_adds: int  # as executed
    ideal_mult_adds: int  # with matrices formed ahead
    matrix_mult_adds: int  # had every structured matrix been stored dense

    def __post_init__(self) -> None:
        _refuse_negative(self)


@dataclasses.dataclass(frozen=True)
class Costs:
    """What a trained network costs, as counted while it ran, and its bytes on disk."""

    params: int
    mult_adds: int
    ideal_mult_adds: int
    bytes: int

    def __post_init__(self) -> None:
        _refuse_negative(self)


@dataclasses.dataclass(frozen=True)
class ErrorRates:
    """Errors on the test images, in percent; None where the targets are no classes."""

    top1: float | None
    top5: float | None
    test_images: int

    def __post_init__(self) -> None:
        if (
            not all(0 <= error <= 100 for error in (self.top1 or 0.0, self.top5 or 0.0))
            or self.test_images < 0
        ):
            raise ValueError(f"errors {self.top1}, {self.top5} of {self.test_images} images are not percent")


@dataclasses.dataclass(frozen=True)
class Speed:
    """Best of several turns: throughput in batches, and the latency of one image."""

    images_per_second: float
    latency_ms: float
    batch_size: int
    threads: int

    def __post_init__(self) -> None:
        if self.images_per_second <= 0 or self.latency_ms <= 0:
            raise ValueError(f"a speed of {self.images_per_second} images a second is none")


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """One epoch; errors in percent, None for what was not measured or no finite number."""

    epoch: int
    step: int
    learning_rate: float
    train_loss: float | None
    train_error: float | None
    test_loss: float | None
    test_error: float | None
    test_top5_error: float | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class Result:
    """One run of a grid: what was asked, how it went, what it costs. None is what is not known (yet).

    `deciding` are the settings of its recipe that decide the outcome, `indifferent` the others; the recipe
    said which is which when the result was written.
    """

    understudy: str  # the version that wrote it
    commit: str | None
    grid: str
    name: str
    id: str  # the identity of its run
    role: Role
    status: Status
    network: str
    data: str
    structure: str  # what stands in for its layers, in words; "" for a dense network
    transforms: tuple[str, ...]
    budget: Size | None
    attention: float  # β of attention transfer; 0 is off
    decay: str
    crs: str  # what weight decay is scaled by the compression of, "layer" or "network"; "" where it is not
    seed: int
    epochs: int  # asked for
    teacher: str  # the identity of its teacher
    deciding: Mapping[str, Json]
    indifferent: Mapping[str, Json]
    planned: PlannedCosts | None
    costs: Costs | None = None
    errors: ErrorRates | None = None
    speed: Speed | None = None
    curve: tuple[CurvePoint, ...] = ()
    machine: Machine | None = None
    # The network that a baseline is a narrower or shallower form of.
    form_of: str = dataclasses.field(default="", metadata=ADDED)

    def __post_init__(self) -> None:
        if not self.name or not self.network:
            raise ValueError(f"name {self.name!r} and network {self.network!r}: neither may be empty")
        labels = ("name", "network", "data", "structure", "grid", "id", "teacher", "decay", "crs", "form_of")
        for key in labels:
            check_label(key, getattr(self, key))
        for transform in self.transforms:
            check_label("transform", transform)
        if self.attention < 0 or self.epochs < 0:
            raise ValueError(f"attention {self.attention} or epochs {self.epochs} is below 0")
        if {self.costs is None, self.errors is None} != {not self.finished}:
            raise ValueError(
                f"it is {self.status.state}: costs and errors belong to what has finished, and only there"
            )

    @property
    def finished(self) -> bool:
        """Whether it was trained to the end."""
        return self.status.state == "finished"

    @property
    def params(self) -> int | None:
        """As counted, or else as planned."""
        known = self.costs or self.planned
        return None if known is None else known.params

    @property
    def mult_adds(self) -> int | None:
        """As counted, or else as planned."""
        known = self.costs or self.planned
        return None if known is None else known.mult_adds

    @property
    def ideal_mult_adds(self) -> int | None:
        """As counted, or else as planned."""
        known = self.costs or self.planned
        return None if known is None else known.ideal_mult_adds

    @property
    def top1(self) -> float | None:
        """The test error in percent."""
        return None if self.errors is None else self.errors.top1

    @property
    def seconds(self) -> float:
        """Of training."""
        return round(sum(epoch.seconds for epoch in self.curve), 2)

    def deciding_but(self, *names: str) -> str:
        """The deciding settings but for some, as text: equal where two results differ in these alone."""
        kept = {key: value for key, value in self.deciding.items() if key not in names}
        return json.dumps(kept, sort_keys=True)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, with its format version."""
        return {"format": FORMAT, **to_plain(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Result:
        """The inverse of `to_dict`; a ResultsError names what is wrong."""
        found = content.get("format")
        label = f"result {content.get('name', '?')}"
        if isinstance(found, bool) or found != FORMAT:
            raise ResultsError(f"{label} has format {found!r}; this version reads format {FORMAT}")
        try:
            return from_plain(cls, {key: value for key, value in content.items() if key != "format"})
        except RecordError as error:
            raise ResultsError(f"{label}: {error}") from error


def check_names(results: Iterable[Result]) -> None:
    """Raise a ResultsError where two results have one name."""
    for name, count in collections.Counter(result.name for result in results).items():
        if count > 1:
            raise ResultsError(f"{count} results have the name {name}")


@dataclasses.dataclass(frozen=True)
class KnobParams:
    """Parameters of a network at each normalised knob of each transform, and the range that all can reach."""

    network: str
    dense: int
    scale: tuple[float, ...]
    transforms: Mapping[str, tuple[int, ...]]
    support: tuple[int, int] | None


@dataclasses.dataclass(frozen=True)
class HashBuckets:
    """The share of a hashed matrix's weights that no entry reads, in theory and as drawn."""

    in_features: int
    out_features: int
    ratio: tuple[float, ...]
    theory: tuple[float, ...]
    measured_ratio: tuple[float, ...]
    independent: tuple[float, ...]
    balanced: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class WidthMultAdds:
    """Mult-adds of one vector through a square map, and the width from which ACDC needs fewer than dense."""

    layers: int
    width: tuple[int, ...]
    dense: tuple[int, ...]
    acdc: tuple[int, ...]
    acdc_published: tuple[int, ...]
    crossover: int | None
    crossover_published: int | None


@dataclasses.dataclass(frozen=True)
class Curves:
    """What a report shows of the method itself, without training."""

    knob_params: KnobParams | None = None
    hash_buckets: HashBuckets | None = None
    width_mult_adds: WidthMultAdds | None = None


def _refuse_negative(costs: PlannedCosts | Costs) -> None:
    for name, count in dataclasses.asdict(costs).items():
        if count < 0:
            raise ValueError(f"{name} is {count}, below 0")
