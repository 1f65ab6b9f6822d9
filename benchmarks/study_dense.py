"""Whether a structure beats a dense network with the same teacher at the same cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from study_runs import NOTICED, Cost, Study, kind_of
from understudy.results import Result

EQUAL = (0.9, 1.03)  # a dense network that costs so many times what a student does is called its equal


def beside_dense(study: Study) -> list[str]:
    """A line for every student with attention transfer, the lowest error first: how much more it errs.

    Its rival is the best taught dense network that costs no more. Where none costs as much, and no cheaper
    one errs less by what is noticed, it is the cheapest of those that cost more: what errs less than that
    errs less than a network of the same cost, by as much at least. Else nothing is said.
    """
    dense = [result for result in study.results if result.role == "baseline" and result.attention]
    students: dict[tuple[str, str, bool], list[Result]] = {}
    for result in study.results:
        if result.role == "student" and result.attention and result.top1 is not None and result.budget:
            key = kind_of(result), result.budget.label, bool(result.crs)
            students.setdefault(key, []).append(result)
    rows = [
        (
            _error(runs),
            f"| `{kind}`{'' if crs else ', without CRS decay'} | {budget} | {_error(runs):.2f} | "
            + " | ".join(_difference(runs, dense, cost) for cost in study.costs().values())
            + " |",
        )
        for (kind, budget, crs), runs in students.items()
    ]
    return [line for _, line in sorted(rows)]


def _error(runs: Sequence[Result]) -> float:
    return statistics.fmean(run.top1 for run in runs if run.top1 is not None)


def _difference(runs: Sequence[Result], dense: Sequence[Result], cost: Cost) -> str:
    """By how many points of error a student is above its rival; bold where it is noticeably below."""
    mine = [paid for run in runs if (paid := cost(run)) is not None]
    if not mine:
        return "open"
    shares: dict[str, list[tuple[float, float]]] = {}
    for rival in dense:
        if (paid := cost(rival)) is not None and rival.top1 is not None:
            shares.setdefault(rival.network, []).append((paid / statistics.fmean(mine), rival.top1))
    means = [tuple(map(statistics.fmean, zip(*same, strict=True))) for same in shares.values()]
    no_dearer = [(share, error) for share, error in means if share <= EQUAL[1]]
    more = _error(runs) - min((error for _, error in no_dearer), default=math.inf)
    if more >= NOTICED or any(share >= EQUAL[0] for share, _ in no_dearer):
        return _told(more)
    dearer = [(share, error) for share, error in means if share > EQUAL[1]]
    more = _error(runs) - min(dearer)[1] if dearer else math.inf
    return f"{_told(more)} or less" if more < 0 else "open"


def _told(more: float) -> str:
    told = f"{more:+.2f}".replace("-", "−")
    return f"**{told}**" if more <= -NOTICED else told
