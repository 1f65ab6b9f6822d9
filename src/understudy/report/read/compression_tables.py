"""The tables of a compressed network: built once, written as Markdown by its card, as HTML by its page."""

from __future__ import annotations

from understudy._util.quantities import format_bytes, format_count, format_share
from understudy.compressions import Compressed, Footprint, Quality, Student

from .tables import NOTHING, Entry, ReportTable

MEASURES = {
    "accuracy": "top-1 accuracy, %",
    "agreement": "answers as the original's, %",
    "cosine": "cosine to the original's outputs",
}
_SHORT = {"accuracy": "accuracy %", "agreement": "agreement %", "cosine": "cosine"}


def student_table(result: Compressed) -> ReportTable:
    """The original, then a row for every student."""
    measures = shown_measures(result)
    recovered = any(student.recovery for student in result.students)
    columns = ["student", ">parameters", ">of all", ">mult-adds", ">bytes", ">latency"]
    columns += [f">{_SHORT[measure]}" for measure in measures]
    columns += [">after recovery"] if recovered else []
    rows = [
        (
            Entry("(original)"),
            *_costs(result.original, result.original),
            Entry(f"{result.latency:.2f} ms", 1.0),
            *(measured(result.quality, measure) for measure in measures),
            *([Entry(NOTHING)] if recovered else []),
        )
    ]
    for student in result.students:
        rows.append(
            (
                Entry(student.name),
                *_costs(student.costs, result.original),
                Entry(f"{student.latency.relative * result.latency:.2f} ms", student.latency.relative),
                *(measured(student.quality, measure) for measure in measures),
                *([after_recovery(student, result.measure)] if recovered else []),
            )
        )
    return ReportTable("Students", tuple(columns), tuple(rows))


def least_telling(result: Compressed) -> list[str]:
    """The columns that a narrow terminal does without, in their order."""
    beside = [_SHORT[measure] for measure in ("cosine", "agreement") if measure != result.measure]
    return ["of all", "bytes", *beside, "mult-adds", "latency"]


def shown_measures(result: Compressed) -> list[str]:
    """What is known of every network, the most telling first."""
    known = {"accuracy": result.quality.accuracy, "agreement": result.quality.agreement, "cosine": 1.0}
    return [measure for measure in MEASURES if known[measure] is not None]


def measured(quality: Quality, measure: str) -> Entry:
    """One measure of a network."""
    values = {"accuracy": quality.accuracy, "agreement": quality.agreement, "cosine": quality.cosine}
    return _number(values[measure], 4 if measure == "cosine" else 2)


def after_recovery(student: Student, measure: str) -> Entry:
    """What a student's training came to, and whether the student is the one from before it."""
    if student.recovery is None:
        return Entry(NOTHING)
    made = measured(student.recovery.quality, measure)
    return made if student.recovery.kept else Entry(f"{made.text}, undone", made.value)


def _costs(costs: Footprint, whole: Footprint) -> tuple[Entry, ...]:
    return (
        Entry(f"{costs.params:,}", costs.params),
        Entry(format_share(costs.params, whole.params), costs.params),
        Entry(format_count(costs.mult_adds), costs.mult_adds),
        Entry(format_bytes(costs.bytes), costs.bytes),
    )


def _number(value: float | None, digits: int) -> Entry:
    return Entry(NOTHING) if value is None else Entry(f"{value:.{digits}f}", value)


def layer_table(student: Student) -> ReportTable:
    """What is kept of every layer of a student, and what is lost by it."""
    rows = tuple(
        (
            Entry(layer.path or "(the network itself)"),
            Entry(layer.shape, layer.dense_params),
            Entry(layer.setting),
            Entry(f"{layer.params:,}", layer.params),
            Entry(f"{100 * layer.kept:.1f}", layer.kept),
            Entry(NOTHING) if layer.error is None else Entry(f"{100 * layer.error:.2f}", layer.error),
            Entry(layer.note),
        )
        for layer in student.layers
    )
    columns = ("layer", "shape", "in its place", ">parameters", ">kept %", ">error %", "note")
    return ReportTable(f"Layers of {student.name}", columns, rows)


def tried_table(student: Student) -> ReportTable:
    """What was tried, and what of it was kept."""
    rows = tuple(
        (
            Entry(step.name),
            Entry("not finite") if step.error is None else Entry(f"{100 * step.error:.2f}", step.error),
            Entry("yes" if step.kept else "no"),
        )
        for step in student.steps
    )
    return ReportTable("What was tried", ("step", ">outputs lost %", "kept"), rows)


def left_table(result: Compressed) -> ReportTable:
    """Layers that were left alone or fitted to their weights alone, and students that cannot be made."""
    rows = [
        (Entry(one.path), Entry(one.shape), Entry(f"left as it is: {one.reason}")) for one in result.skipped
    ]
    looked = result.calibration
    rows += [(Entry(path), Entry(""), Entry("never ran on the data: fitted plainly")) for path in looked.idle]
    rows += [
        (Entry(path), Entry(""), Entry("saw fewer vectors than it has dimensions: regularised"))
        for path in looked.short
    ]
    rows += [(Entry(one.name), Entry(""), Entry(f"not made: {one.reason}")) for one in result.refused]
    return ReportTable("Skipped, and why", ("what", "shape", "why"), tuple(rows))
