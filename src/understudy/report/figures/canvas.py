"""What all figures share: settings of matplotlib, saving, markers, labels. The same bytes on every run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy._util.files import whole_file
from understudy._util.quantities import format_count

from .labels import Box, Point, place_labels
from .style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GREY, RULE = "#1a1a1a", "#6b6b6b", "#d9d9d9"
MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "down": "v",
    "pentagon": "p",
    "plus": "P",
    "cross": "X",
    "star": "*",
    "hexagon": "h",
    "left": "<",
    "right": ">",
}
_UNSAID: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
_WIDTH = 5.5  # inches: a column of text
_PANEL = 3.3  # of panels side by side
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "understudy",
    "svg.fonttype": "path",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 9,
    "axes.edgecolor": GREY,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "figure.dpi": 100,
    "savefig.dpi": 200,
}


class MissingPlotsError(ModuleNotFoundError):
    """matplotlib is not installed."""


@contextmanager
def drawing() -> Iterator[None]:
    """matplotlib with the settings of this report; MissingPlotsError names the extra it comes with."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingPlotsError(
            "figures need matplotlib: pip install 'understudy[plots]'", name=error.name
        ) from error
    with matplotlib.rc_context(_SETTINGS):
        yield


def new_figure(height: float, rows: Sequence[float] = (1,), columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure, at least of column width, and its axes row by row, of relative heights; no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(_WIDTH, _PANEL * columns), height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(rows), columns, height_ratios=rows)
    axes = [figure.add_subplot(grid[place]) for place in range(len(rows) * columns)]
    for ax in axes:
        ax.grid(color=RULE, linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
    return figure, axes


def legend_below(figure: Figure) -> None:
    """All series of a figure, called as they are: no name is a formula."""
    for text in figure.legend(loc="outside lower center", ncols=4).get_texts():
        text.set_parse_math(False)


def log_axis(ax: Axes, which: Literal["x", "y"], values: Iterable[float]) -> None:
    """Make an axis logarithmic, from the least to the greatest value, with ticks such as 20k, 50k, 100k."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    shown = list(values)
    low, high = min(shown), max(shown)
    margin = max(1.2, (high / low) ** 0.05)
    ax.set(**{f"{which}scale": "log", f"{which}lim": (low / margin, high * margin)})
    axis = ax.xaxis if which == "x" else ax.yaxis
    steps = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
    axis.set_minor_locator(NullLocator())


def tick_text(value: float) -> str:
    """20000 → `20k`."""
    return format_count(round(value)).replace(".00", "").replace(".0", "") if value >= 1 else f"{value:g}"


def save(figure: Figure, folder: Path, name: str, kinds: Sequence[str] = ("svg", "png")) -> list[Path]:
    """A file of each kind, without a date or a version in it."""
    settle(figure)
    paths = [folder / f"{name}.{kind}" for kind in kinds]
    for path, kind in zip(paths, kinds, strict=True):
        with whole_file(path) as temporary:
            figure.savefig(temporary, format=kind, metadata=_UNSAID[kind], facecolor="white")
    return paths


def settle(figure: Figure) -> None:
    """Fit everything into the figure, once: from then on no point moves."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def label_points(
    figure: Figure,
    ax: Axes,
    texts: Sequence[tuple[str, float, float]],
    *,
    points: Sequence[Point] = (),
    line: Sequence[Point] = (),
) -> list[Box]:
    """Write each text near its point, where there is room; gives the boxes, in pixels.

    No text covers one of the other `points`, or the `line` through some corners.
    """
    settle(figure)
    pixels = figure.dpi / 72

    def pixel(x: float, y: float) -> Point:
        across, up = ax.transData.transform((x, y))
        return float(across), float(up)

    anchors = [pixel(x, y) for _, x, y in texts]
    corners = [pixel(x, y) for x, y in line]
    sizes = []
    for text, _, _ in texts:
        extent = (made := figure.text(0, 0, text, fontsize=6.5, parse_math=False)).get_window_extent()
        sizes.append((extent.width, extent.height))
        made.remove()
    frame = ax.get_window_extent()
    bounds = Box(frame.x0, frame.y0, frame.x1, frame.y1)
    boxes = place_labels(
        anchors,
        sizes,
        bounds,
        points=[pixel(x, y) for x, y in points],
        lines=list(itertools.pairwise(corners)),
        marker=3.2 * pixels,
    )
    for (text, x, y), anchor, box in zip(texts, anchors, boxes, strict=True):
        if box is None:
            continue
        nearest = box.nearest(anchor)
        if math.dist(nearest, anchor) > 12 * pixels:
            ax.annotate(
                "", (x, y), xytext=_offset(nearest, anchor, pixels), textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 3},
            )  # fmt: skip
        ax.annotate(
            text, (x, y), xytext=_offset((box.left, box.low), anchor, pixels), textcoords="offset points",
            fontsize=6.5, ha="left", va="bottom", parse_math=False, annotation_clip=False,
        )  # fmt: skip
    return [box for box in boxes if box is not None]


def _offset(place: Point, anchor: Point, pixels: float) -> Point:
    return (place[0] - anchor[0]) / pixels, (place[1] - anchor[1]) / pixels


def marked(look: Style) -> dict[str, Any]:
    """How matplotlib draws a style."""
    size = 7.0 if look.marker == "star" else 4.5
    return {"color": look.light, "marker": MARKERS[look.marker], "markersize": size}
