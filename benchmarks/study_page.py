"""docs/study.md as the study's runs fill it: how far it has come, its errors, what it says."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence

from marks import between_marks
from study_dense import beside_dense
from study_runs import BUDGETS, MIDDLE, Study, kind_of
from study_verdicts import findings
from understudy._util.quantities import format_count
from understudy.results import Result


def progress(study: Study, cells: int) -> str:
    """How many runs have ended, how long they took, and which they are."""
    done = [result for result in study.results if result.finished]
    hours = sum(point.seconds for result in done for point in result.curve) / 3600
    students = [result for result in done if result.role == "student"]
    seeds = len({result.seed for result in students})
    said = [
        f"{len(done)} of {cells} runs have ended, in {hours:.0f} hours of one core, pauses included, "
        f"with {seeds} seed{'' if seeds == 1 else 's'}:",
        "",
    ]
    parts = {
        **{f"students of {budget}": _names(study, students, budget) for budget in BUDGETS},
        "without attention transfer": _names(study, students, MIDDLE, attention=False),
        "without CRS decay": _names(study, students, MIDDLE, crs=False),
        "dense networks": sorted({f"`{result.network}`" for result in done if result.role == "baseline"}),
    }
    return "\n".join(
        [*said, *(f"- {what}: {', '.join(names) or 'none'}" for what, names in parts.items()), ""]
    )


def _names(
    study: Study, students: Sequence[Result], budget: str, *, attention: bool = True, crs: bool = True
) -> list[str]:
    kinds = dict.fromkeys(map(kind_of, students))
    return [f"`{kind}`" for kind in kinds if study.errors(kind, budget, attention=attention, crs=crs)]


def errors_table(study: Study) -> list[str]:
    """With a teacher, structures with scaled decay: a line for every one at every budget, best first."""
    lines = []
    for (kind, budget), runs in _taught(study).items():
        speeds = [run.speed for run in runs if run.speed is not None]
        in_pytorch = [speed.latency_ms for speed in speeds]
        in_onnx = [study.shipped[run.name] for run in runs if run.name in study.shipped]
        texts = [
            f"`{kind}`",
            _spread(study.errors(kind, budget)),
            f"{runs[0].params:,}",
            format_count(runs[0].mult_adds or 0),
            *(f"{statistics.median(times):.2f}" if times else "" for times in (in_pytorch, in_onnx)),
            f"{statistics.median(speed.images_per_second for speed in speeds):,.0f}" if speeds else "",
        ]
        lines.append((statistics.fmean(study.errors(kind, budget)), f"| {' | '.join(texts)} |"))
    return [line for _, line in sorted(lines)]


def _taught(study: Study) -> dict[tuple[str, str], list[Result]]:
    found: dict[tuple[str, str], list[Result]] = {}
    for result in study.results:
        if result.finished and result.budget is not None:
            key = kind_of(result), result.budget.label
            if result in study.of(*key):
                found.setdefault(key, []).append(result)
    return found


def ablations_table(study: Study) -> list[str]:
    """A line for every structure and dense network that was run without one of the two, too."""
    lines = []
    for kind, budget in _taught(study):
        without = [study.errors(kind, budget, attention=False)]
        is_dense = all(run.role == "baseline" for run in study.of(kind, budget))
        without.append([] if is_dense else study.errors(kind, budget, crs=False))
        if any(without):
            texts = [f"`{kind}`", budget, *map(_spread, (study.errors(kind, budget), *without))]
            lines.append(f"| {' | '.join(texts)} |")
    return lines


def _spread(errors: Iterable[float]) -> str:
    known = list(errors)
    if not known:
        return ""
    mean = f"{statistics.fmean(known):.2f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):.2f} to {max(known):.2f})"


def filled(page: str, results: Sequence[Result], shipped: Mapping[str, float], cells: int) -> str:
    """The page with what stands between its marks as the results say."""
    study = Study(results, shipped)
    parts = {
        "errors": errors_table(study),
        "ablations": ablations_table(study),
        "verdicts": [finding.line for finding in findings(study)],
        "dense": beside_dense(study),
    }
    for name, lines in parts.items():
        page = put(page, name, lines)
    return between_marks(page, "progress", progress(study, cells))


def put(page: str, name: str, lines: Sequence[str]) -> str:
    """The page with these lines under the head of its table `name`, which ends at the next mark."""
    head = re.search(rf"<!-- {name} -->\n((?:\|[^\n]*\n){{2}})", page)
    if head is None:
        raise ValueError(f"the page has no table between <!-- {name} --> and <!-- end -->")
    return between_marks(page, name, head[1] + "".join(f"{line}\n" for line in lines) + "\n")
