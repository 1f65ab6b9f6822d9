"""The runs of the study that are settled, found by what they are."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping

from understudy.report.read.groups import ablations
from understudy.results import Result

BUDGETS = _, MIDDLE, STRONG = "58k", "35k", "21k"
PAPER = ("low_rank", "tensor_train", "tucker", "acdc", "hashed", "shuffle")
NOTICED = 1.0  # points of error; less is called no difference
SURE = 2.0  # of one seed; less is a hint
Cost = Callable[[Result], float | None]


class Study:
    """The runs that are settled, found by what they are; of some the ms of an image as an ONNX file."""

    def __init__(self, results: Iterable[Result], shipped: Mapping[str, float] | None = None) -> None:
        self.results = list(results)
        self.shipped = dict(shipped or {})

    def costs(self) -> dict[str, Cost]:
        """What a network may be said to cost, by the names of it."""
        return {
            "parameters": lambda result: result.params,
            "mult-adds": lambda result: result.mult_adds,
            "latency in PyTorch": lambda result: None if result.speed is None else result.speed.latency_ms,
            "latency in ONNX Runtime": lambda result: self.shipped.get(result.name),
        }

    def errors(
        self, kind: str, budget: str = MIDDLE, *, attention: bool = True, crs: bool = True
    ) -> list[float]:
        """The test errors over seeds, those of the runs that finished."""
        return [
            result.top1
            for result in self.of(kind, budget, attention=attention, crs=crs)
            if result.top1 is not None
        ]

    def of(
        self, kind: str, budget: str = MIDDLE, *, attention: bool = True, crs: bool = True
    ) -> list[Result]:
        """The runs of a structure, or of `narrow` and `shallow` networks, whose decay is never scaled."""
        return [
            result
            for result in self.results
            if (kind_of(result), bool(result.attention)) == (kind, attention)
            and result.budget is not None
            and result.budget.label == budget
            and (result.role == "baseline" or bool(result.crs) == crs)
        ]

    def gains(self, factor: str, role: str = "student") -> dict[str, float]:
        """By how much a factor lowers each network's error at the middle budget, seed against seed."""
        return {
            kind_of(row.result): -row.difference.mean
            for row in ablations(self.results)
            if row.factor == factor and row.result.role == role and _is_middle(row.result) and row.difference
        }

    @property
    def structures(self) -> list[str]:
        """Those at the middle budget with both, the lowest error first."""
        kinds = {kind_of(result) for result in self.results if result.role == "student"}
        known = [kind for kind in kinds if self.errors(kind)]
        return sorted(known, key=lambda kind: statistics.fmean(self.errors(kind)))


def _is_middle(result: Result) -> bool:
    return result.budget is not None and result.budget.label == MIDDLE


def kind_of(result: Result) -> str:
    """`shuffle`, `shuffle:inside`, or `narrow` and `shallow` for dense networks."""
    return result.structure or result.name.partition("-")[0]
