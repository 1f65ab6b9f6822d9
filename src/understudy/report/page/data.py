"""What the page's script draws, as plain data, and how it is put into HTML without a way out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from understudy._util.quantities import format_bytes, format_count
from understudy._util.records import to_plain
from understudy.report.figures.style import Style, style_key
from understudy.report.read.groups import Group, Problem
from understudy.report.read.published import published
from understudy.report.read.summary import teacher_of
from understudy.report.read.tables import images_per_second, top5
from understudy.results import Curves, Result

_MOST_EPOCHS = 120  # of a curve on the page: more than its pixels show


def page_data(
    groups: Sequence[Group],
    problems: Sequence[Problem],
    looks: Mapping[str, Style],
    curves: Curves | None,
) -> dict[str, Any]:
    """Problems, series, points and curves; the settings that all results share are given once."""
    keys = list(looks)
    settings = [_settings(group.first) for group in groups]
    shared = _shared(settings)
    teachers = [teacher_of(groups, problem) for problem in problems]
    return {
        "series": [{"key": key, "marker": look.marker} for key, look in looks.items()],
        "problems": [
            {
                "label": problem.label,
                "teacher": None if teacher is None else groups.index(teacher),
                "published": [
                    {
                        "label": point.label,
                        "source": point.source,
                        "params": point.params,
                        "mult_adds": point.mult_adds,
                        "error": point.top1,
                    }
                    for point in published(problem.network, problem.data)
                ],
            }
            for problem, teacher in zip(problems, teachers, strict=True)
        ],
        "groups": [
            _group(group, problems.index(group.problem), keys.index(style_key(group.first)), own, shared)
            for group, own in zip(groups, settings, strict=True)
        ],
        "shared": {key: _text(value) for key, value in shared.items()},
        "method": to_plain(curves or Curves()),
    }


def embedded_json(data: Any) -> str:
    """JSON that can stand inside a script element: no tag, comment or line separator survives in it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _settings(result: Result) -> dict[str, Any]:
    """What decides the outcome of all seeds, a setting in a table under a name such as `request.spatial`."""
    flat: dict[str, Any] = {}
    for key, value in result.deciding.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        elif key != "seed":
            flat[key] = value
    return flat


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
    group: Group, problem: int, series: int, own: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, Any]:
    result = (group.finished or group.results)[0]
    error = group.error
    latency = group.statistic(_latency_ms)
    return {
        "problem": problem,
        "series": series,
        "label": group.label,
        "params": result.params,
        "mult_adds": result.mult_adds,
        "bytes": None if result.costs is None else result.costs.bytes,
        "latency": None if latency is None else round(latency.mean, 4),
        "error": None if error is None else round(error.mean, 4),
        "deviation": None if error is None or error.deviation is None else round(error.deviation, 4),
        "facts": _facts(group, result),
        "settings": {key: _text(value) for key, value in own.items() if key not in shared},
        "curves": [_curve(result) for result in group.results if result.curve],
    }


def _facts(group: Group, result: Result) -> list[tuple[str, str]]:
    """The whole configuration and outcome in words, empty ones left out."""
    student = result.role == "student"
    error, five = group.error, group.statistic(top5)
    rate = group.statistic(images_per_second)
    latency = group.statistic(_latency_ms)
    seconds = group.statistic(lambda result: result.seconds)
    facts = [
        ("top-1 error", error.text(2, unit=" %") if error else ""),
        ("top-5 error", five.text(2, unit=" %") if five else ""),
        ("parameters", "" if result.params is None else f"{result.params:,}"),
        ("mult-adds", "" if result.mult_adds is None else format_count(result.mult_adds)),
        ("ideal mult-adds", "" if result.ideal_mult_adds is None else format_count(result.ideal_mult_adds)),
        ("on disk", "" if result.costs is None else format_bytes(result.costs.bytes)),
        ("images/s", rate.text(0) if rate else ""),
        ("latency", latency.text(2, unit=" ms") if latency else ""),
        ("role", result.role),
        ("network", result.network),
        ("data", result.data),
        ("transform", result.structure),
        ("budget", result.budget.label if result.budget else ""),
        (
            "attention β",
            (f"{result.attention:g}" if result.attention else "off") if result.role != "teacher" else "",
        ),
        ("decay", result.decay if student else ""),
        ("seeds", ", ".join(str(each.seed) for each in group.results)),
        ("status", group.states),
        ("training", seconds.text(0, unit=" s") if seconds else ""),
        ("commit", (result.commit or "")[:12]),
        ("machine", str(result.machine or "")),
        ("cells", ", ".join(each.name for each in group.results)),
    ]
    return [(name, text) for name, text in facts if text]


def _latency_ms(result: Result) -> float | None:
    return None if result.speed is None else result.speed.latency_ms


def _curve(result: Result) -> dict[str, Any]:
    """A learning curve with few enough points; the last one is always there."""
    step = -(-len(result.curve) // _MOST_EPOCHS)
    kept = result.curve[::-1][::step][::-1]
    return {
        "seed": result.seed,
        "epoch": [point.epoch + 1 for point in kept],
        "train": [_rounded(point.train_error) for point in kept],
        "test": [_rounded(point.test_error) for point in kept],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
