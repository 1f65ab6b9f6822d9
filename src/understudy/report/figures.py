"""The figures of a sweep: error against cost, ablations, learning curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .canvas import GREY, INK, drawing, file_name, label_points, marked, new_figure, save
from .cells import Cell
from .groups import Ablation, Group, Task
from .method_figures import method_figures
from .pareto import front
from .published import published
from .style import style_key, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABELS = 40


def error_figure(
    groups: Sequence[Group], task: Task, cost: Callable[[Cell], float | None], label: str, field: str
) -> Figure | None:
    """Error against a cost, log x, the Pareto front drawn; None when no point has both."""
    points = []
    for group in groups:
        x = cost(group.finished[0]) if group.finished else None
        if group.task == task and group.error is not None and x:
            points.append((group, x, group.error))
    if not points:
        return None
    figure, (ax,) = new_figure(3.9)
    looks = styles(style_key(group.first) for group, _, _ in points)
    ax.set_xscale("log")
    ax.set_xlabel(label)
    ax.set_ylabel("top-1 test error, %")
    ax.set_title(task.label, loc="left")
    for key, look in looks.items():
        mine = [(x, error) for group, x, error in points if style_key(group.first) == key]
        ax.errorbar(
            [x for x, _ in mine],
            [error.mean for _, error in mine],
            yerr=[error.deviation or 0.0 for _, error in mine],
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
    others = [(point, getattr(point, field)) for point in published(task.network, task.data)]
    for source, colour in (("paper", INK), ("literature", GREY)):
        mine_published = [(x, point.top1) for point, x in others if point.source == source and x]
        if mine_published:
            xs, ys = zip(*mine_published, strict=True)
            ax.plot(xs, ys, "o", markerfacecolor="none", markeredgecolor=colour, markersize=4.5,
                    markeredgewidth=0.7, label=f"published, {source}", zorder=2)  # fmt: skip
    figure.legend(loc="outside lower center", ncols=4)
    priority = best + [index for index in range(len(points)) if index not in best]
    chosen = priority if len(points) <= MOST_LABELS else best[:MOST_LABELS]
    texts = [(points[i][0].label, points[i][1], points[i][2].mean) for i in chosen]
    texts += [(point.label, x, point.top1) for point, x in others if x]
    label_points(figure, ax, texts)
    return figure


def ablation_figure(rows: Sequence[Ablation]) -> Figure | None:
    """Differences in error, a bar for each setting and a panel for each factor; below 0 the factor helps."""
    factors = [
        (factor, mine)
        for factor in dict.fromkeys(row.factor for row in rows)
        if (mine := [row for row in rows if row.factor == factor and row.difference is not None])
    ]
    if not factors:
        return None
    count = sum(len(mine) for _, mine in factors)
    figure, axes = new_figure(0.55 * len(factors) + 0.4 + 0.17 * count, rows=len(factors))
    looks = styles(row.transform for row in rows)
    several = len({row.task for row in rows}) > 1
    for ax, (factor, mine) in zip(axes, factors, strict=True):
        ax.get_subplotspec().get_gridspec().set_height_ratios([len(each) for _, each in factors])
        places = range(len(mine))
        differences = [row.difference for row in mine if row.difference is not None]
        ax.barh(
            places,
            [difference.mean for difference in differences],
            xerr=[difference.deviation or 0.0 for difference in differences],
            color=[looks[row.transform].light for row in mine],
            height=0.62,
            error_kw={"elinewidth": 0.8, "ecolor": INK},
            zorder=3,
        )
        names = [f"{row.label} ({row.task.label})" if several else row.label for row in mine]
        ax.set_yticks(list(places), names, parse_math=False)
        ax.set_ylim(len(mine) - 0.5, -0.5)
        ax.axvline(0, color=INK, linewidth=0.8, zorder=4)
        ax.grid(axis="y", visible=False)
        ax.set_title(f"Effect of {factor}", loc="left")
    axes[-1].set_xlabel("change of top-1 test error, points (left is better)")
    return figure


def learning_figure(cells: Sequence[Cell], task: Task) -> Figure | None:
    """Test error by epoch, a line for each cell, coloured by transform."""
    drawn = [cell for cell in cells if any(point.test_error is not None for point in cell.curve)]
    if not drawn:
        return None
    figure, (ax,) = new_figure(3.4)
    looks = styles(style_key(cell) for cell in drawn)
    seen: set[str] = set()
    for cell in drawn:
        key = style_key(cell)
        points = [(point.epoch + 1, point.test_error) for point in cell.curve if point.test_error is not None]
        ax.plot(
            [epoch for epoch, _ in points],
            [error for _, error in points],
            color=looks[key].light,
            linewidth=1.6 if key == "teacher" else 0.9,
            alpha=1.0 if key == "teacher" or len(drawn) <= 12 else 0.6,
            label=None if key in seen else key,
        )
        seen.add(key)
    ax.set_xlabel("epoch")
    ax.set_ylabel("top-1 test error, %")
    ax.set_ylim(bottom=0)
    ax.set_title(task.label, loc="left")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def write_figures(
    groups: Sequence[Group], rows: Sequence[Ablation], curves: Mapping[str, Any] | None, folder: Path
) -> list[Path]:
    """Every figure there is data for; MissingPlotsError without matplotlib."""
    with drawing():
        folder.mkdir(parents=True, exist_ok=True)
        made: list[tuple[str, Figure | None]] = []
        for task in dict.fromkeys(group.task for group in groups):
            cells = [cell for group in groups if group.task == task for cell in group.cells]
            end = file_name(task.network, task.data)
            by_params = error_figure(groups, task, lambda cell: cell.params, "parameters", "params")
            by_mult_adds = error_figure(
                groups, task, lambda cell: cell.mult_adds, "mult-adds as executed", "mult_adds"
            )
            made += [
                (f"error_params-{end}", by_params),
                (f"error_mult_adds-{end}", by_mult_adds),
                (f"learning_curves-{end}", learning_figure(cells, task)),
            ]
        made.append(("ablations", ablation_figure(rows)))
        made += method_figures(curves or {})
        paths: list[Path] = []
        for name, figure in made:
            if figure is not None:
                while folder / f"{name}.svg" in paths:  # two names can be alike once made safe
                    name += "-"
                paths += save(figure, folder, name)
        return paths
