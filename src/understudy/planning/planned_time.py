"""The time that a plan was made for: of the network as it was, and of its student."""

from __future__ import annotations

import dataclasses

from understudy._util.quantities import format_share, format_time


@dataclasses.dataclass(frozen=True)
class PlannedTime:
    """Nanoseconds of one pass in inference, of a student always modelled.

    It is a part of the plan, not of what was asked: asked again, another machine measures something else.
    """

    original: int
    student: int
    rest: int  # of both, what lies outside the layers that may be substituted
    is_measured: bool  # the original and the rest, and so the pace of the student
    threads: int

    def __post_init__(self) -> None:
        for field in ("original", "student", "rest", "threads"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} is {getattr(self, field)}, below 0")

    def __str__(self) -> str:
        share, threads = format_share(self.student, self.original), f"{self.threads} threads"
        how = (
            f"measured on this machine with {threads}"
            if self.is_measured
            else f"modelled for {threads}, not measured"
        )
        text = (
            f"student {format_time(self.student)}, modelled, {share} of the original's "
            f"{format_time(self.original)}, {how}"
        ).replace("1 threads", "1 thread")
        return f"{text}; {format_time(self.rest)} of both outside the layers that may be substituted"
