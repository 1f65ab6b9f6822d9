"""What the page's script draws, as plain data, and how it is put into HTML without a way out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from understudy._util.quantities import format_bytes, format_count
from understudy.report.figures.style import Style, style_key
from understudy.report.read.cells import Cell
from understudy.report.read.groups import Group, Task
from understudy.report.read.published import published
from understudy.report.read.summary import teacher_of

_MOST_EPOCHS = 120  # of a curve on the page: more than its pixels show


def page_data(
    groups: Sequence[Group],
    tasks: Sequence[Task],
    looks: Mapping[str, Style],
    curves: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Tasks, series, points and curves; the settings that all cells share are given once."""
    keys = list(looks)
    settings = [json.loads(group.first.settings) for group in groups]
    shared = _shared(settings)
    teachers = [teacher_of(groups, task) for task in tasks]
    return {
        "series": [{"key": key, "marker": look.marker} for key, look in looks.items()],
        "tasks": [
            {
                "label": task.label,
                "teacher": None if teacher is None else groups.index(teacher),
                "published": [
                    {
                        "label": point.label,
                        "source": point.source,
                        "params": point.params,
                        "mult_adds": point.mult_adds,
                        "error": point.top1,
                    }
                    for point in published(task.network, task.data)
                ],
            }
            for task, teacher in zip(tasks, teachers, strict=True)
        ],
        "groups": [
            _group(group, tasks.index(group.task), keys.index(style_key(group.first)), own, shared)
            for group, own in zip(groups, settings, strict=True)
        ],
        "shared": {key: _text(value) for key, value in shared.items()},
        "method": dict(curves or {}),
    }


def embedded_json(data: Any) -> str:
    """JSON that can stand inside a script element: no tag, comment or line separator survives in it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shared(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if not settings:
        return {}
    first, *others = settings
    return {
        key: value
        for key, value in first.items()
        if all(key in other and other[key] == value for other in others)
    }


def _group(
    group: Group, task: int, series: int, own: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, Any]:
    cell = (group.finished or group.cells)[0]
    error = group.error
    latency = group.statistic(lambda cell: cell.latency_ms)
    return {
        "task": task,
        "series": series,
        "label": group.label,
        "params": cell.params,
        "mult_adds": cell.mult_adds,
        "bytes": cell.bytes,
        "latency": None if latency is None else round(latency.mean, 4),
        "error": None if error is None else round(error.mean, 4),
        "deviation": None if error is None or error.deviation is None else round(error.deviation, 4),
        "facts": _facts(group, cell),
        "settings": {key: _text(value) for key, value in own.items() if key not in shared},
        "curves": [_curve(cell) for cell in group.cells if cell.curve],
    }


def _facts(group: Group, cell: Cell) -> list[tuple[str, str]]:
    """The whole configuration and outcome in words, empty ones left out."""
    student = cell.role == "student"
    error, top5 = group.error, group.statistic(lambda cell: cell.top5)
    rate = group.statistic(lambda cell: cell.images_per_second)
    latency = group.statistic(lambda cell: cell.latency_ms)
    seconds = group.statistic(lambda cell: cell.seconds)
    facts = [
        ("top-1 error", error.text(2, unit=" %") if error else ""),
        ("top-5 error", top5.text(2, unit=" %") if top5 else ""),
        ("parameters", "" if cell.params is None else f"{cell.params:,}"),
        ("mult-adds", "" if cell.mult_adds is None else format_count(cell.mult_adds)),
        ("ideal mult-adds", "" if cell.ideal_mult_adds is None else format_count(cell.ideal_mult_adds)),
        ("on disk", "" if cell.bytes is None else format_bytes(cell.bytes)),
        ("images/s", rate.text(0) if rate else ""),
        ("latency", latency.text(2, unit=" ms") if latency else ""),
        ("role", cell.role),
        ("network", cell.network),
        ("data", cell.data),
        ("transform", cell.transform),
        ("budget", cell.budget),
        (
            "attention β",
            (f"{cell.attention:g}" if cell.attention else "off") if cell.role != "teacher" else "",
        ),
        ("decay", cell.decay if student else ""),
        ("seeds", ", ".join(str(each.seed) for each in group.cells)),
        ("status", group.status),
        ("training", seconds.text(0, unit=" s") if seconds else ""),
        ("commit", cell.commit[:12]),
        ("machine", cell.machine),
        ("cells", ", ".join(each.name for each in group.cells)),
    ]
    return [(name, text) for name, text in facts if text]


def _curve(cell: Cell) -> dict[str, Any]:
    """A learning curve with few enough points; the last one is always there."""
    step = -(-len(cell.curve) // _MOST_EPOCHS)
    kept = cell.curve[::-1][::step][::-1]
    return {
        "seed": cell.seed,
        "epoch": [point.epoch + 1 for point in kept],
        "train": [_rounded(point.train_error) for point in kept],
        "test": [_rounded(point.test_error) for point in kept],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
