"""The few numbers a reader looks for first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from understudy._util.quantities import format_count, format_share
from understudy.results import FAILURES, Result

from .groups import Group, Problem

CLOSE = 1.0  # points of error within which a student stands for its teacher


@dataclasses.dataclass(frozen=True)
class Tile:
    """A number, what it is, and what it belongs to."""

    label: str
    value: str
    note: str


def teacher_of(groups: Sequence[Group], problem: Problem) -> Group | None:
    """The network that the others stand in for."""
    return next(
        (group for group in groups if group.problem == problem and group.first.role == "teacher"), None
    )


def smallest_close(groups: Sequence[Group], problem: Problem) -> Group | None:
    """The substitute with the fewest parameters whose mean error is within a point of the teacher's."""
    teacher = teacher_of(groups, problem)
    if teacher is None or teacher.error is None:
        return None
    limit = teacher.error.mean + CLOSE
    close = [
        (group.finished[0].params, index)
        for index, group in enumerate(groups)
        if group.problem == problem and group.first.structure and group.error and group.error.mean <= limit
    ]
    known = [(params, index) for params, index in close if params is not None]
    return groups[min(known)[1]] if known else None


def tiles(groups: Sequence[Group], problem: Problem) -> list[Tile]:
    """The best error, the smallest good substitute, the teacher, and how the cells went."""
    mine = [group for group in groups if group.problem == problem]
    results = [result for group in mine for result in group.results]
    substitutes = [
        (group.error.mean, i) for i, group in enumerate(mine) if group.first.structure and group.error
    ]
    made = []
    if substitutes:
        best = mine[min(substitutes)[1]]
        assert best.error is not None
        made.append(
            Tile("Best substitute", f"{best.error.number(2)}\N{NO-BREAK SPACE}%", best.label + _seeds(best))
        )
    teacher = teacher_of(groups, problem)
    reference = teacher.first.params if teacher else None
    smallest = smallest_close(groups, problem)
    if smallest is not None and smallest.error is not None:
        params = smallest.finished[0].params
        share = f"{format_share(params, reference)} of the teacher, " if reference else ""
        made.append(
            Tile(
                f"Smallest within {CLOSE:g} point of the teacher",
                format_count(params),
                f"{share}{smallest.label}{_seeds(smallest)}",
            )
        )
    elif teacher is not None and teacher.error is not None:
        made.append(
            Tile(f"Smallest within {CLOSE:g} point of the teacher", "none", "no substitute is so near")
        )
    if teacher is not None and teacher.error is not None:
        size = f"{format_count(reference)} parameters" if reference else ""
        label = f"Teacher, {teacher.first.network}"
        made.append(Tile(label, f"{teacher.error.number(2)}\N{NO-BREAK SPACE}%", size + _seeds(teacher)))
    made.append(_progress(results))
    return made


def _seeds(group: Group) -> str:
    return f", n={len(group.finished)}" if len(group.finished) > 1 else ""


def _progress(results: Sequence[Result]) -> Tile:
    finished = sum(result.finished for result in results)
    return Tile("Cells finished", f"{finished} of {len(results)}", counts(results))


def counts(results: Sequence[Result]) -> str:
    """`1 diverged, 2 running`, of all that are not finished; `no failures` where there is nothing to say."""
    states = [result.status.state for result in results]
    parts = [
        f"{states.count(state)} {state}" for state in (*FAILURES, "running", "waiting") if state in states
    ]
    return ", ".join(parts) or "no failures"
