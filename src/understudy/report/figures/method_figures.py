"""The figures that need no training: knobs, hash buckets, and where ACDC begins to pay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from understudy.results import Curves, HashBuckets, KnobParams, WidthMultAdds

from .canvas import GREY, INK, legend_below, log_axis, marked, new_figure
from .style import Style, styles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def method_figures(curves: Curves, looks: Mapping[str, Style]) -> Iterator[tuple[str, Figure]]:
    """Name and figure of each part that is there."""
    if curves.knob_params is not None:
        yield "knob_params", knob_figure(curves.knob_params, looks)
    if curves.hash_buckets is not None:
        yield "hash_buckets", bucket_figure(curves.hash_buckets)
    if curves.width_mult_adds is not None:
        yield "width_mult_adds", width_figure(curves.width_mult_adds)


def knob_figure(data: KnobParams, looks: Mapping[str, Style]) -> Figure:
    """Appendix B: parameters of the substituted network against the normalised knob."""
    figure, (ax,) = new_figure(3.4)
    for number, (key, params) in enumerate(data.transforms.items()):
        ax.plot(data.scale, params, **marked(looks[key]), markevery=(number % 6, 6), label=key)
    if data.support is not None:
        ax.axhspan(*data.support, color=GREY, alpha=0.13, linewidth=0, label="all reach")
    ax.axhline(data.dense, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), label="dense")
    log_axis(ax, "y", [data.dense, *(count for params in data.transforms.values() for count in params)])
    ax.set_xlim(0, 1)
    ax.set_xlabel("normalised knob")
    ax.set_ylabel("parameters of the network")
    ax.set_title(data.network, loc="left", parse_math=False)
    legend_below(figure)
    return figure


def bucket_figure(data: HashBuckets) -> Figure:
    """Appendix A: weights that no entry of the matrix reads, against compression."""
    figure, (ax,) = new_figure(3.0)
    look = styles(["hashed"])["hashed"]
    ax.plot(data.ratio, _percent(data.theory), color=GREY, label="exp(−1/c)")
    ax.plot(data.measured_ratio, _percent(data.independent), "v", color=look.light, markersize=4.5,
            label="independent indices, measured")  # fmt: skip
    ax.plot(data.measured_ratio, _percent(data.balanced), "o", color=INK, markersize=3.5, clip_on=False,
            label="balanced indices, measured")  # fmt: skip
    ax.set_ylim(bottom=0)
    ax.set_xlim(0, 1)
    ax.set_xlabel("real weights / entries of the matrix, c")
    ax.set_ylabel("unused weights, %")
    ax.set_title(f"a hashed {data.in_features} → {data.out_features} matrix", loc="left")
    ax.legend(loc="upper left")
    return figure


def width_figure(data: WidthMultAdds) -> Figure:
    """Mult-adds of one vector against width: where ACDC gets cheaper than the dense matrix."""
    figure, (ax,) = new_figure(3.2)
    look = styles(["acdc"])["acdc"]
    ax.plot(data.width, data.dense, color=INK, label="dense, N²")
    ax.plot(data.width, data.acdc, color=look.light, label=f"ACDC, {data.layers} layers, as counted")
    ax.plot(data.width, data.acdc_published, color=look.light, linestyle=(0, (4, 2)),
            label="ACDC, published estimate")  # fmt: skip
    log_axis(ax, "x", data.width)
    log_axis(ax, "y", [*data.dense, *data.acdc])
    ax.set_xlabel("width N")
    ax.set_ylabel("mult-adds of a vector")
    for name, width, offset, side in (
        ("counted", data.crossover, (14, -18), "left"),
        ("published", data.crossover_published, (-14, 16), "right"),
    ):
        if width is not None:
            ax.plot([width], [width**2], "o", markersize=4.5, markerfacecolor="white", color=INK, zorder=4)
            ax.annotate(
                f"{name}: N = {width:,}", (width, width**2),
                xytext=offset, textcoords="offset points", ha=side, va="center", fontsize=7,
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkB": 3},
            )  # fmt: skip
    ax.legend(loc="upper left")
    return figure


def _percent(shares: Iterable[float]) -> list[float]:
    return [100 * share for share in shares]
