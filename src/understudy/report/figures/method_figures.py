"""The figures that need no training: knobs, hash buckets, and where ACDC begins to pay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .canvas import GREY, INK, log_axis, marked, new_figure
from .style import styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def method_figures(curves: Mapping[str, Any]) -> list[tuple[str, Figure | None]]:
    """Name and figure of each part of `understudy.experiments.curves.curves` that is there."""
    drawers = {"knob_params": knob_figure, "hash_buckets": bucket_figure, "width_mult_adds": width_figure}
    return [(name, draw(curves[name])) for name, draw in drawers.items() if curves.get(name)]


def knob_figure(data: Mapping[str, Any]) -> Figure:
    """Appendix B: parameters of the substituted network against the normalised knob."""
    figure, (ax,) = new_figure(3.4)
    for number, (key, look) in enumerate(styles(data["transforms"]).items()):
        params = data["transforms"][key]
        ax.plot(data["scale"], params, **marked(look), markevery=(number, 6), label=key)
    low, high = data["support"]
    ax.axhspan(low, high, color=GREY, alpha=0.13, linewidth=0, label="all reach")
    ax.axhline(data["dense"], color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="dense")
    log_axis(ax, "y", [data["dense"], *(count for params in data["transforms"].values() for count in params)])
    ax.set_xlim(0, 1)
    ax.set_xlabel("normalised knob")
    ax.set_ylabel("parameters of the network")
    ax.set_title(str(data["network"]), loc="left", parse_math=False)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def bucket_figure(data: Mapping[str, Any]) -> Figure:
    """Appendix A: weights that no entry of the matrix reads, against compression."""
    figure, (ax,) = new_figure(3.0)
    look = styles(["hashed"])["hashed"]
    ax.plot(data["ratio"], _percent(data["theory"]), color=GREY, label="exp(−1/c)")
    ax.plot(data["measured_ratio"], _percent(data["independent"]), "v", color=look.light, markersize=4.5,
            label="independent indices, measured")  # fmt: skip
    ax.plot(data["measured_ratio"], _percent(data["balanced"]), "o", color=INK, markersize=3.5, clip_on=False,
            label="balanced indices, measured")  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.set_xlim(0, 1)
    ax.set_xlabel("real weights / entries of the matrix, c")
    ax.set_ylabel("unused weights, %")
    ax.set_title(f"a hashed {data['in_features']} → {data['out_features']} matrix", loc="left")
    ax.legend(loc="upper left")
    return figure


def width_figure(data: Mapping[str, Any]) -> Figure:
    """Mult-adds of one vector against width: where ACDC gets cheaper than the dense matrix."""
    figure, (ax,) = new_figure(3.2)
    look = styles(["acdc"])["acdc"]
    layers = data["layers"]
    ax.plot(data["width"], data["dense"], color=INK, label="dense, N²")
    ax.plot(data["width"], data["acdc"], color=look.light, label=f"ACDC, {layers} layers, as counted")
    ax.plot(data["width"], data["acdc_published"], color=look.light, linestyle=(0, (4, 2)),
            label="ACDC, published estimate")  # fmt: skip
    log_axis(ax, "x", data["width"])
    log_axis(ax, "y", [*data["dense"], *data["acdc"]])
    ax.set_xlabel("width N")
    ax.set_ylabel("mult-adds of a vector")
    for name, offset, side in (("crossover", (14, -18), "left"), ("crossover_published", (-14, 16), "right")):
        if (width := data[name]) is not None:
            ax.plot([width], [width**2], "o", markersize=4.5, markerfacecolor="white", color=INK, zorder=4)
            ax.annotate(
                f"{'published' if side == 'right' else 'counted'}: N = {width:,}", (width, width**2),
                xytext=offset, textcoords="offset points", ha=side, va="center", fontsize=7,
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": 3},
            )  # fmt: skip
    ax.legend(loc="upper left")
    return figure


def _percent(shares: list[float]) -> list[float]:
    return [100 * share for share in shares]
