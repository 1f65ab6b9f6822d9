"""What all figures share: settings of matplotlib, saving, markers, labels. The same bytes on every run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import whole_file
from .labels import Box, place_labels
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
_WIDTH = 5.5  # inches: a column of text
_SETTINGS = {
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


def new_figure(height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of column width and its axes, one below the other; no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(rows, 1, row + 1) for row in range(rows)]
    for ax in axes:
        ax.grid(color=RULE, linewidth=0.5, zorder=0)
        ax.set_axisbelow(True)
    return figure, axes


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Both files, without a date or a version in them."""
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    for path, metadata in zip(paths, ({"Date": None, "Creator": None}, {"Software": None}), strict=True):
        with whole_file(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], metadata=metadata, facecolor="white")
    return paths


def file_name(*parts: str) -> str:
    """A name that any file system takes, whatever a network is called."""
    return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", part).strip("-.") or "unnamed" for part in parts)


def label_points(figure: Figure, ax: Axes, texts: Sequence[tuple[str, float, float]]) -> list[Box]:
    """Write each text near its point, where there is room; gives the boxes, in pixels."""
    figure.canvas.draw()  # settles the layout, which decides where points are
    figure.set_layout_engine("none")
    pixels = figure.dpi / 72
    anchors = [tuple(map(float, ax.transData.transform((x, y)))) for _, x, y in texts]
    sizes = []
    for text, _, _ in texts:
        extent = (made := figure.text(0, 0, text, fontsize=6.5, parse_math=False)).get_window_extent()
        sizes.append((extent.width, extent.height))
        made.remove()
    frame = ax.get_window_extent()
    bounds = Box(frame.x0, frame.y0, frame.x1, frame.y1)
    boxes = place_labels([(x, y) for x, y in anchors], sizes, bounds, marker=3.5 * pixels)
    for (text, x, y), anchor, box in zip(texts, anchors, boxes, strict=True):
        if box is None:
            continue
        far = abs(box.nearest(anchor)[0] - anchor[0]) + abs(box.nearest(anchor)[1] - anchor[1]) > 16 * pixels
        nearest = box.nearest(anchor)
        if far:
            ax.annotate(
                "", (x, y), xytext=_offset(nearest, anchor, pixels), textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 3},
            )  # fmt: skip
        ax.annotate(
            text, (x, y), xytext=_offset((box.left, box.low), anchor, pixels), textcoords="offset points",
            fontsize=6.5, ha="left", va="bottom", parse_math=False, annotation_clip=False,
        )  # fmt: skip
    return [box for box in boxes if box is not None]


def _offset(place: tuple[float, float], anchor: tuple[float, float], pixels: float) -> tuple[float, float]:
    return (place[0] - anchor[0]) / pixels, (place[1] - anchor[1]) / pixels


def marked(look: Style) -> dict[str, Any]:
    """How matplotlib draws a style."""
    size = 7.0 if look.marker == "star" else 4.5
    return {"color": look.light, "marker": MARKERS[look.marker], "markersize": size}
