"""What the study found, as docs/study.md tells it: a table of errors, and a verdict on each conclusion."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from marks import between_marks
from understudy._util.quantities import format_count
from understudy.report.read.groups import ablations
from understudy.results import Result

MIDDLE, STRONG = "35k", "21k"
PAPER = ("low_rank", "tensor_train", "tucker", "acdc", "hashed", "shuffle")
NOTICED = 0.5  # points of error; less is called no difference
EQUAL = (0.75, 1.03)  # a dense network that costs so many times what a student does is called its equal
Cost = Callable[[Result], float | None]
Verdict = Literal["confirmed", "not visible at this scale", "contradicted", "open"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A conclusion, what is to be said of it here, and the numbers."""

    conclusion: str
    verdict: Verdict
    numbers: str = ""

    @property
    def line(self) -> str:
        """A line of the table."""
        return f"| {self.conclusion} | {self.verdict} | {self.numbers} |"


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

    def gains(self, factor: str) -> dict[str, float]:
        """By how much a factor lowers each structure's error at the middle budget, seed against seed."""
        return {
            row.structure: -row.difference.mean
            for row in ablations(self.results)
            if row.factor == factor
            and row.result.role == "student"
            and _is_middle(row.result)
            and row.difference
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


def findings(study: Study) -> list[Finding]:
    """Each of the paper's conclusions."""
    return [
        _attention_helps(study),
        _crs_rescues_shuffle(study),
        _hashed_without_crs(study),
        _hold_out_longest(study),
        _shuffle_is_on_the_front(study),
        _acdc_is_unstable(study),
    ]


def _attention_helps(study: Study) -> Finding:
    told = "attention transfer helps by more than a point"
    gains = study.gains("attention transfer")
    if not gains:
        return Finding(told, "open")
    mean = statistics.fmean(gains.values())
    verdict: Verdict = "not visible at this scale"
    if mean > 1:
        verdict = "confirmed"
    elif mean < -NOTICED:
        verdict = "contradicted"
    return Finding(told, verdict, f"error lower by {mean:.2f} points on average: {_listed(gains)}")


def _crs_rescues_shuffle(study: Study) -> Finding:
    told = "CRS decay stabilises training, and rescues `shuffle`"
    gains = study.gains("CRS decay")
    lost = [
        f"`{kind}` diverged {'with' if crs else 'without'} it"
        for kind in study.structures
        for crs in (False, True)
        if any(result.status.state == "diverged" for result in study.of(kind, crs=crs))
    ]
    if "shuffle" not in gains:
        return Finding(told, "open")
    numbers = "; ".join([f"error lower with it by {_listed(gains)}", *lost])
    return Finding(told, _judged(gains["shuffle"]), numbers)


def _hashed_without_crs(study: Study) -> Finding:
    told = "`hashed` is better without CRS decay"
    gain = study.gains("CRS decay").get("hashed")
    if gain is None:
        return Finding(told, "open")
    return Finding(told, _judged(-gain), f"error {_more(gain)} without it")


def _hold_out_longest(study: Study) -> Finding:
    told = "`hashed` and `tensor_train` hold out longest at strong compression"
    rises = {
        kind: statistics.fmean(strong) - statistics.fmean(middle)
        for kind in PAPER
        if (strong := study.errors(kind, STRONG)) and (middle := study.errors(kind))
    }
    if {"hashed", "tensor_train"} - rises.keys() or len(rises) < len(PAPER) - 1:
        return Finding(told, "open")
    least = sorted(rises, key=rises.__getitem__)
    verdict: Verdict = "not visible at this scale"
    if set(least[:2]) == {"hashed", "tensor_train"}:
        verdict = "confirmed"
    elif not {"hashed", "tensor_train"} & set(least[:3]):
        verdict = "contradicted"
    return Finding(told, verdict, f"from {MIDDLE} to {STRONG} the error rises by {_listed(rises)}")


def _shuffle_is_on_the_front(study: Study) -> Finding:
    told = "`shuffle` is Pareto-optimal in mult-adds"
    kinds = [kind for kind in PAPER if study.errors(kind)]
    if "shuffle" not in kinds or len(kinds) < len(PAPER):
        return Finding(told, "open")
    points = {
        kind: (study.of(kind)[0].mult_adds or 0, statistics.fmean(study.errors(kind))) for kind in kinds
    }
    numbers = "; ".join(
        f"`{kind}` {format_count(cost)}, {error:.2f} %"
        for kind, (cost, error) in sorted(points.items(), key=lambda item: item[1])
    )
    cost, error = points.pop("shuffle")
    ahead = [error - other for less, other in points.values() if less <= cost and other <= error]
    if not ahead:
        return Finding(told, "confirmed", numbers)
    return Finding(told, "contradicted" if max(ahead) >= NOTICED else "not visible at this scale", numbers)


def _acdc_is_unstable(study: Study) -> Finding:
    told = "`acdc` is unstable"
    rises = {kind: max(map(_largest_rise, runs)) for kind in PAPER if (runs := study.of(kind))}
    if len(rises) < len(PAPER):
        return Finding(told, "open")
    others = [rises[kind] for kind in PAPER if kind != "acdc"]
    verdict: Verdict = "not visible at this scale"
    if rises["acdc"] > 1.5 * max(others):
        verdict = "confirmed"
    elif rises["acdc"] < statistics.median(others):
        verdict = "contradicted"
    return Finding(told, verdict, f"largest rise of the test error between two epochs: {_listed(rises)}")


def _largest_rise(result: Result) -> float:
    """Between two epochs; without end for a run that diverged."""
    if not result.finished:
        return float("inf")
    errors = [point.test_error for point in result.curve if point.test_error is not None]
    return max((after - before for before, after in itertools.pairwise(errors)), default=0.0)


def _judged(gain: float) -> Verdict:
    if abs(gain) < NOTICED:
        return "not visible at this scale"
    return "confirmed" if gain > 0 else "contradicted"


def _listed(numbers: dict[str, float]) -> str:
    return ", ".join(f"`{kind}` {number:.2f}" for kind, number in numbers.items()).replace(" -", " −")


def _more(points: float) -> str:
    return f"{abs(points):.2f} points {'higher' if points > 0 else 'lower'}"


def beside_dense(study: Study) -> list[str]:
    """A line a cost: which students err less than the best taught dense network that costs no more.

    Without one that costs about as much, or less and errs less, nothing is said of a student.
    """
    students = [result for kind in study.structures for result in study.of(kind)]
    dense = [result for result in study.results if result.role == "baseline" and result.attention]
    return [
        f"| {name} | {' | '.join(_told(students, dense, cost) or ['open'] * 3)} |"
        for name, cost in study.costs().items()
    ]


def _told(students: Sequence[Result], dense: Sequence[Result], cost: Cost) -> list[str]:
    """Those that are better, as good, and worse; nothing where nothing can be compared."""
    better: dict[str, list[float]] = {}
    for student in students:
        mine = cost(student)
        if student.top1 is None or mine is None:
            continue
        known = [(price / mine, one.top1) for one in dense if (price := cost(one)) and one.top1 is not None]
        no_dearer = [(share, error) for share, error in known if share <= EQUAL[1]]
        gain = min((error for _, error in no_dearer), default=math.inf) - student.top1
        if gain <= -NOTICED or any(share >= EQUAL[0] for share, _ in no_dearer):
            better.setdefault(kind_of(student), []).append(gain)
    gains = {kind: statistics.fmean(values) for kind, values in better.items()}
    if not gains:
        return []
    parts = (
        {kind: gain for kind, gain in gains.items() if gain >= NOTICED},
        {kind: gain for kind, gain in gains.items() if abs(gain) < NOTICED},
        {kind: -gain for kind, gain in gains.items() if gain <= -NOTICED},
    )
    return [_listed(part) or "none" for part in parts]


def errors_table(study: Study) -> list[str]:
    """A line for every structure and every dense network at every budget, the lowest error first."""
    done: dict[tuple[str, str], list[Result]] = {}
    for result in study.results:
        if result.finished and result.budget is not None:
            done.setdefault((kind_of(result), result.budget.label), []).append(result)
    lines = []
    for (kind, budget), runs in done.items():
        is_dense = runs[0].role == "baseline"  # there is nothing that its decay could be scaled by
        columns = [
            study.errors(kind, budget),
            study.errors(kind, budget, attention=False),
            [] if is_dense else study.errors(kind, budget, crs=False),
        ]
        in_pytorch = [run.speed.latency_ms for run in runs if run.speed is not None]
        in_onnx = [study.shipped[run.name] for run in runs if run.name in study.shipped]
        texts = [
            f"`{kind}`",
            f"{runs[0].params:,}",
            format_count(runs[0].mult_adds or 0),
            *(f"{statistics.median(times):.2f}" if times else "" for times in (in_pytorch, in_onnx)),
            *map(_spread, columns),
        ]
        lines.append((min(run.top1 or 100.0 for run in runs), f"| {' | '.join(texts)} |"))
    return [line for _, line in sorted(lines)]


def _spread(errors: list[float]) -> str:
    if not errors:
        return ""
    mean = f"{statistics.fmean(errors):.2f}"
    return mean if len(errors) == 1 else f"{mean} ({min(errors):.2f} to {max(errors):.2f})"


def filled(page: str, results: Sequence[Result], shipped: Mapping[str, float]) -> str:
    """The page with what stands between its marks as the results say."""
    study = Study(results, shipped)
    parts = {
        "errors": errors_table(study),
        "verdicts": [finding.line for finding in findings(study)],
        "dense": beside_dense(study),
    }
    for name, lines in parts.items():
        page = put(page, name, lines)
    return page


def put(page: str, name: str, lines: Sequence[str]) -> str:
    """The page with these lines under the head of its table `name`, which ends at the next mark."""
    head = re.search(rf"<!-- {name} -->\n((?:\|[^\n]*\n){{2}})", page)
    if head is None:
        raise ValueError(f"the page has no table between <!-- {name} --> and <!-- end -->")
    return between_marks(page, name, head[1] + "".join(f"{line}\n" for line in lines) + "\n")
