"""What the study says of each of the paper's conclusions: a verdict that follows from its runs."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from typing import Literal

from study_runs import MIDDLE, NOTICED, PAPER, STRONG, SURE, Study
from understudy._util.quantities import format_count
from understudy.results import Result

Verdict = Literal[
    "confirmed",
    "confirmed, a hint",
    "not visible at this scale",
    "contradicted, a hint",
    "contradicted",
    "open",
]


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
    numbers = f"error {_more(-mean)} with it on average: {_listed(gains)}; {_of_the_six(gains)}"
    if dense := study.gains("attention transfer", "baseline"):
        numbers += f"; of dense networks {_listed(dense)}"
    return Finding(told, _judged(mean), numbers)


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
    changes = ", ".join(f"`{kind}` {_more(-gain)}" for kind, gain in gains.items())
    rises = [
        f"`{kind}` {_largest_rise(study.of(kind)[0]):.1f} with it, "
        f"{_largest_rise(study.of(kind, crs=False)[0]):.1f} without"
        for kind in gains
    ]
    numbers = [f"error with it: {changes}", f"largest rise of it between two epochs: {'; '.join(rises)}"]
    return Finding(told, _judged(gains["shuffle"]), "; ".join([*numbers, *lost]))


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
    numbers = f"from {MIDDLE} to {STRONG} the error rises by {_listed(rises)}; {_of_the_six(rises)}"
    return Finding(told, verdict, numbers)


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
    if alone := study.errors("shuffle", crs=False):
        numbers += f"; without CRS decay `shuffle` has {statistics.fmean(alone):.2f} %"
    cost, error = points.pop("shuffle")
    ahead = [error - other for less, other in points.values() if less <= cost and other <= error]
    if not ahead:
        return Finding(told, "confirmed", numbers)
    return Finding(told, _judged(-max(ahead)), numbers)


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
    if abs(gain) < SURE:
        return "confirmed, a hint" if gain > 0 else "contradicted, a hint"
    return "confirmed" if gain > 0 else "contradicted"


def _of_the_six(known: dict[str, float]) -> str:
    """Of how many of the paper's structures something is known."""
    lacking = [f"`{kind}`" for kind in PAPER if kind not in known]
    return f"not run: {', '.join(lacking)}" if lacking else "all six"


def _listed(numbers: dict[str, float]) -> str:
    return ", ".join(f"`{kind}` {number:.2f}" for kind, number in numbers.items()).replace(" -", " −")


def _more(points: float) -> str:
    return f"{abs(points):.2f} points {'higher' if points > 0 else 'lower'}"
