"""The figures of a sweep: error against cost, ablations, learning curves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from understudy._util.names import file_name
from understudy.report.read.groups import Ablation, Group, Problem
from understudy.report.read.pareto import front
from understudy.report.read.published import published
from understudy.results import Curves, Result

from .canvas import GREY, INK, drawing, label_points, legend_below, log_axis, marked, new_figure, save
from .method_figures import method_figures
from .style import Style, style_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LABELS = 40
MOST_BARS = 24


def error_figure(
    groups: Sequence[Group],
    problem: Problem,
    looks: Mapping[str, Style],
    cost: Literal["params", "mult_adds"],
    label: str,
) -> Figure | None:
    """Error against a cost, log x, the Pareto front drawn; None when no point has both."""
    points = []
    for group in groups:
        x = getattr(group.finished[0], cost) if group.finished else None
        if group.problem == problem and group.error is not None and x:
            points.append((group, x, group.error))
    if not points:
        return None
    figure, (ax,) = new_figure(3.9)
    few = len(points) <= MOST_LABELS
    ax.set_xlabel(label)
    ax.set_ylabel("top-1 test error, %")
    ax.set_title(problem.label, loc="left", parse_math=False)
    for key, look in looks.items():
        mine = [(x, error) for group, x, error in points if style_key(group.first) == key]
        if not mine:
            continue
        ax.errorbar(
            [x for x, _ in mine],
            [error.mean for _, error in mine],
            yerr=[error.deviation or 0.0 for _, error in mine] if few else None,
            **marked(look),
            linestyle="none",
            label=key,
            elinewidth=0.8,
            zorder=3,
        )
    best = front([(x, error.mean) for _, x, error in points])
    ax.plot(
        [points[index][1] for index in best],
        [points[index][2].mean for index in best],
        drawstyle="steps-post",
        color=INK,
        linewidth=0.9,
        zorder=2,
        label="Pareto front",
    )
    others = [(point, getattr(point, cost)) for point in published(problem.network, problem.data)]
    log_axis(ax, "x", [*(x for _, x, _ in points), *(x for _, x in others if x)])
    for source, colour in (("paper", INK), ("literature", GREY)):
        mine_published = [(x, point.top1) for point, x in others if point.source == source and x]
        if mine_published:
            xs, ys = zip(*mine_published, strict=True)
            ax.plot(xs, ys, "o", markerfacecolor="none", markeredgecolor=colour, markersize=4.5,
                    markeredgewidth=0.7, label=f"published, {source}", zorder=2)  # fmt: skip
    legend_below(figure)
    priority = best + [index for index in range(len(points)) if index not in best]
    chosen = priority if few else best[:MOST_LABELS]
    texts = [(points[i][0].label, points[i][1], points[i][2].mean) for i in chosen]
    texts += [(point.label, x, point.top1) for point, x in others if x]
    corners = [(points[index][1], points[index][2].mean) for index in best]
    label_points(
        figure,
        ax,
        texts,
        points=[(x, error.mean) for _, x, error in points],
        line=[corner for step in zip(corners, _before(corners), strict=True) for corner in step[::-1]],
    )
    return figure


def _before(corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where a front of steps turns just before each of its points: under it, at the level of the last one."""
    levels = [corners[0][1], *(error for _, error in corners)]
    return [(cost, level) for (cost, _), level in zip(corners, levels, strict=False)]


def ablation_figure(rows: Sequence[Ablation], looks: Mapping[str, Style]) -> Figure | None:
    """Differences in error, a panel for each factor; left of 0 the factor helps.

    Each setting has a bar of its own or, where these are too many, a marker in the row of its transform.
    """
    factors = [
        (factor, mine)
        for factor in dict.fromkeys(row.factor for row in rows)
        if (mine := [row for row in rows if row.factor == factor and row.difference is not None])
    ]
    if not factors:
        return None
    few = sum(len(mine) for _, mine in factors) <= MOST_BARS
    lines = [len(mine) if few else len({row.structure for row in mine}) for _, mine in factors]
    figure, axes = new_figure(0.45 * len(factors) + 0.35 + (0.17 if few else 0.3) * sum(lines), lines)
    for ax, (factor, mine) in zip(axes, factors, strict=True):
        (_bars if few else _dots)(ax, mine, looks)
        ax.axvline(0, color=INK, linewidth=0.8, zorder=4)
        ax.grid(axis="y", visible=False)
        ax.set_title(f"Effect of {factor}", loc="left")
    axes[-1].set_xlabel("change of top-1 test error, points (left is better)")
    return figure


def _bars(ax: Axes, rows: Sequence[Ablation], looks: Mapping[str, Style]) -> None:
    differences = [row.difference for row in rows if row.difference is not None]
    ax.barh(
        range(len(rows)),
        [difference.mean for difference in differences],
        xerr=[difference.deviation or 0.0 for difference in differences],
        color=[looks[row.structure].light for row in rows],
        height=0.62,
        error_kw={"elinewidth": 0.8, "ecolor": INK},
        zorder=3,
    )
    several = len({row.problem for row in rows}) > 1
    names = [f"{row.label} ({row.problem.label})" if several else row.label for row in rows]
    ax.set_yticks(range(len(rows)), names, parse_math=False)
    ax.set_ylim(len(rows) - 0.5, -0.5)


def _dots(ax: Axes, rows: Sequence[Ablation], looks: Mapping[str, Style]) -> None:
    keys = [key for key in looks if any(row.structure == key for row in rows)]
    for line, key in enumerate(keys):
        mine = [row.difference for row in rows if row.structure == key and row.difference is not None]
        places = [line + 0.6 * ((number + 0.5) / len(mine) - 0.5) for number in range(len(mine))]
        ax.errorbar(
            [difference.mean for difference in mine],
            places,
            xerr=[difference.deviation or 0.0 for difference in mine],
            **marked(looks[key]),
            linestyle="none",
            elinewidth=0.5,
            zorder=3,
        )
    ax.set_yticks(range(len(keys)), keys, parse_math=False)
    ax.set_ylim(len(keys) - 0.5, -0.5)


def learning_figure(results: Sequence[Result], problem: Problem, looks: Mapping[str, Style]) -> Figure | None:
    """Test error by epoch: a line for each run or, of many, the mean of each transform in its range."""
    found: dict[str, list[dict[int, float]]] = {}
    for result in results:
        points = {point.epoch + 1: point.test_error for point in result.curve if point.test_error is not None}
        if points:
            found.setdefault(style_key(result), []).append(points)
    if not found:
        return None
    figure, (ax,) = new_figure(3.4)
    few = sum(map(len, found.values())) <= MOST_BARS
    for key, look in looks.items():
        if key not in found:
            continue
        for number, points in enumerate(found[key] if few else []):
            name = None if number else key
            ax.plot(list(points), list(points.values()), color=look.light, label=name)
        if not few:
            epochs = sorted({epoch for points in found[key] for epoch in points})
            errors = [[points[epoch] for points in found[key] if epoch in points] for epoch in epochs]
            ax.plot(epochs, [statistics.fmean(each) for each in errors], color=look.light, label=key)
            ax.fill_between(
                epochs,
                list(map(min, errors)),
                list(map(max, errors)),
                color=look.light,
                alpha=0.12,
                linewidth=0,
            )
    ax.set_xlabel("epoch")
    ax.set_ylabel("top-1 test error, %")
    errors_drawn = [error for curves in found.values() for points in curves for error in points.values()]
    if min(errors_drawn) > 0:
        log_axis(ax, "y", errors_drawn)
    ax.set_title(f"{problem.label}{'' if few else ': means and ranges'}", loc="left", parse_math=False)
    legend_below(figure)
    return figure


def write_figures(
    groups: Sequence[Group],
    rows: Sequence[Ablation],
    curves: Curves | None,
    looks: Mapping[str, Style],
    folder: Path,
) -> list[Path]:
    """Every figure there is data for; MissingPlotsError without matplotlib."""
    with drawing():
        folder.mkdir(parents=True, exist_ok=True)
        made: list[tuple[str, Figure | None]] = []
        for problem in dict.fromkeys(group.problem for group in groups):
            results = [result for group in groups if group.problem == problem for result in group.results]
            end = f"{_part(problem.network)}-{_part(problem.data)}"
            by_mult_adds = error_figure(groups, problem, looks, "mult_adds", "mult-adds as executed")
            made += [
                (f"error_params-{end}", error_figure(groups, problem, looks, "params", "parameters")),
                (f"error_mult_adds-{end}", by_mult_adds),
                (f"learning_curves-{end}", learning_figure(results, problem, looks)),
            ]
        made.append(("ablations", ablation_figure(rows, looks)))
        made += method_figures(curves or Curves(), looks)
        paths: list[Path] = []
        for name, figure in made:
            if figure is not None:
                while folder / f"{name}.svg" in paths:  # two names can be alike once made safe
                    name += "-"
                paths += save(figure, folder, name)
        return paths


def _part(text: str) -> str:
    return file_name(text) or "unnamed"
