"""What a comparison says: its table, whether the student holds what it promises, where it does not help."""

from __future__ import annotations

import dataclasses

from understudy._util.quantities import format_bytes
from understudy.comparisons import Comparison, Contender, Recovered, Role

from .tables import NOTHING, Entry, ReportTable

POINTS = 0.5  # of error that a student may lose to its original
ROLES: dict[Role, str] = {
    "original": "original",
    "compressed": "student, nothing trained",
    "student": "student",
    "narrower": "narrower dense",
    "taught": "narrower dense, with the same teacher",
}
_RECOVERED: dict[Recovered, str] = {"kept": ", recovered", "undone": ", its recovery undone", "none": ""}


@dataclasses.dataclass(frozen=True)
class Claim:
    """One thing that a student is to be better at than its original."""

    what: str
    told: str
    is_held: bool

    def __str__(self) -> str:
        return f"{'yes' if self.is_held else 'NO'}: {self.what}, {self.told}"


def called(found: Comparison, role: Role) -> str:
    """What a network is to the others; a student is recovered only where its recovery was kept."""
    return ROLES[role] + (_RECOVERED[found.recovery] if role == "student" else "")


def comparison_table(found: Comparison) -> ReportTable:
    """A row for every network; the times are best / median."""
    batches = [call.batch for call in found.of("original").calls]
    times = tuple(f">ms, batch {batch}" for batch in batches)
    columns = ("", "network", ">parameters", ">file", ">test error", ">made in", *times)
    rows = tuple(
        (
            Entry(called(found, one.role)),
            Entry(one.name),
            Entry(f"{one.params:,}", one.params),
            Entry(format_bytes(one.bytes), one.bytes),
            Entry(f"{one.error:.1f} %", one.error),
            Entry(f"{one.seconds:.0f} s", one.seconds),
            *(Entry(f"{call.best_ms:.3f} / {call.median_ms:.3f}", call.best_ms) for call in one.calls),
            *([Entry(NOTHING)] * (0 if one.calls else len(batches))),
        )
        for one in found.contenders
    )
    return ReportTable("Side by side", columns, rows)


def claims(found: Comparison) -> list[Claim]:
    """The student against its original: smaller, quicker, and hardly worse."""
    whole, student = found.of("original"), found.of("student")
    made = [
        Claim("fewer parameters", _times(whole.params, student.params), student.params < whole.params),
        Claim("a smaller file", _times(whole.bytes, student.bytes), student.bytes < whole.bytes),
    ]
    for slow, quick in zip(whole.calls, student.calls, strict=True):
        told = f"best {_times(slow.best_ms, quick.best_ms)}, median {_times(slow.median_ms, quick.median_ms)}"
        is_quicker = quick.best_ms < slow.best_ms and quick.median_ms < slow.median_ms
        made.append(Claim(f"quicker with batch {slow.batch}", told, is_quicker))
    lost = round(student.error - whole.error, 6)
    told = f"{student.error:.1f} % against {whole.error:.1f} %"
    return [*made, Claim(f"an error at most {POINTS} points higher", told, lost <= POINTS)]


def beside_rivals(found: Comparison) -> list[str]:
    """The student against dense networks of its size, a sentence each, whoever is ahead."""
    return [_beside(found.of("student"), rival) for rival in found.rivals]


def _beside(student: Contender, rival: Contender) -> str:
    parts = [f"error {student.error:.1f} % against {rival.error:.1f} %"]
    parts += [
        f"batch {mine.batch}: {mine.best_ms:.3f} against {other.best_ms:.3f} ms"
        for mine, other in zip(student.calls, rival.calls, strict=True)
    ]
    better = [
        what
        for what, is_better in (
            ("error", student.error < rival.error),
            *(
                (f"latency with batch {mine.batch}", mine.best_ms < other.best_ms)
                for mine, other in zip(student.calls, rival.calls, strict=True)
            ),
        )
        if is_better
    ]
    ahead = f"the student is ahead in {', '.join(better)}" if better else "the student is ahead in nothing"
    return f"Beside {ROLES[rival.role]} ({rival.name}): {ahead} ({'; '.join(parts)})."


def limits(found: Comparison) -> list[str]:
    """Where structure does not help, with this comparison's own numbers where they show it."""
    whole, student = found.of("original"), found.of("student")
    saved = whole.params / student.params
    less = [
        f"{_times(slow.best_ms, quick.best_ms)} with batch {slow.batch}"
        for slow, quick in zip(whole.calls, student.calls, strict=True)
        if slow.best_ms / quick.best_ms < saved
    ]
    told = []
    if less:
        told.append(
            f"It has {saved:.1f} times fewer parameters and is not as many times quicker: {', '.join(less)}. "
            "Each stand-in is two or more small products instead of a large one, and each has its price."
        )
    slower = [
        rival
        for rival in found.rivals
        if any(other.best_ms < mine.best_ms for mine, other in zip(student.calls, rival.calls, strict=True))
    ]
    if slower:
        told.append(
            "A dense network of the same size has fewer and fuller products: it is quicker here "
            f"({', '.join(rival.name for rival in slower)}). Where there is time to train one to the same "
            "error, and labels to train it with, it is the better choice."
        )
    return [
        *told,
        "Layers of fewer than about a hundred channels, and calls with few inputs, are all overhead: the "
        "smaller the network, the less there is to win.",
        f"{found.test_samples:,} test images and one seed: a difference of a few tenths of a point says "
        "nothing.",
    ]


def _times(large: float, small: float) -> str:
    return f"{large / small:.1f} ×"
