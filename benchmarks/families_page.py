"""The tables and figures of docs/choose.md, from the committed result of `families.py`."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from marks import between_marks
from understudy.report.figures.canvas import drawing, log_axis, marked, new_figure, save
from understudy.report.figures.style import styles
from understudy.transforms import list_transforms

PAGE = Path(__file__).parent.parent / "docs" / "choose.md"
FIGURES = PAGE.parent / "figures"
NETWORKS = {"efficientnet_lite0": "EfficientNet-Lite0", "resnet56": "ResNet-56", "minilm": "MiniLM"}
DRAWN = {  # a layer of each network, with as many families as were fitted to one
    "blocks.2.1.conv_pw": "EfficientNet-Lite0: a pointwise layer, 40 → 240",
    "layer2.4.conv2": "ResNet-56: a 3×3 kernel unfolded, 288 → 32",
    "body.encoder.layer.2.attention.self.query": "MiniLM: the queries of an attention, 384 → 384",
}
SHARES = (0.1, 0.25, 0.5)
Cells = Sequence[dict[str, Any]]


def families(cells: Cells) -> list[str]:
    """The families, in the order in which they are listed everywhere."""
    return sorted({cell["transform"] for cell in cells}, key=list_transforms().index)


@dataclasses.dataclass(frozen=True)
class Mean:
    """An error over the layers of a network; not whole where one of them has no fit."""

    value: float
    is_whole: bool

    def __str__(self) -> str:
        return f"{self.value:.2f}" if self.is_whole else f"({self.value:.2f})"


def mean(cells: Cells, fit: str, norm: str, **wanted: object) -> Mean | None:
    """Over the layers that the family was fitted to; None where there is none."""
    mine = [cell for cell in cells if all(cell[key] == value for key, value in wanted.items())]
    fitted = [cell[fit][norm] for cell in mine if "refused" not in cell]
    return Mean(statistics.fmean(fitted), len(fitted) == len(mine)) if fitted else None


def _row(name: str, numbers: Sequence[Mean | None]) -> str:
    return " | ".join([f"| `{name}`", *("–" if n is None else str(n) for n in numbers)]) + " |"


def _head(first: str, columns: Sequence[str]) -> list[str]:
    return [f"| {' | '.join([first, *columns])} |", f"|---|{'--:|' * len(columns)}"]


def _kept() -> list[str]:
    return [f"{name} {share:.0%}".replace("%", " %") for name in NETWORKS.values() for share in SHARES]


def errors(cells: Cells, fit: str, norm: str) -> list[str]:
    """A row for every family: its mean error on each network at each share of the entries."""
    return _head("", _kept()) + [
        _row(
            name,
            [
                mean(cells, fit, norm, transform=name, network=network, share=share, within="")
                for network in NETWORKS
                for share in SHARES
            ],
        )
        for name in families(cells)
    ]


def equal(cells: Cells) -> list[str]:
    """`btt`, and others in no more parameters than it has: errors of the outputs, fitted to data."""
    found = _head("", _kept())
    held = [(name, "btt") for name in families([cell for cell in cells if cell["within"]])]
    for name, within in [("btt", ""), *held]:
        numbers = []
        for network in NETWORKS:
            for share in SHARES:
                where = {"network": network, "share": share}
                reached = mean(cells, "aware", "outputs", transform="btt", within="", **where)
                number = mean(cells, "aware", "outputs", transform=name, within=within, **where)
                numbers.append(None if reached is None else number)
        found.append(_row(name, numbers))
    return found


def costs(cells: Cells) -> list[str]:
    """A row for every family on the drawn layers in a quarter of the entries: what it has, runs and loses."""
    columns = [
        f"{name}: {what}" for name in NETWORKS.values() for what in ("parameters", "mult-adds", "once made")
    ]
    found = _head("% of the dense layer's", columns)
    for name in families(cells):
        numbers: list[str] = []
        for layer in DRAWN:
            mine = [c for c in cells if c["layer"] == layer and c["transform"] == name and not c["within"]]
            [cell] = [c for c in mine if c["share"] == 0.25]
            entries = cell["in_features"] * cell["out_features"]
            keys = ("params", "mult_adds", "ideal_mult_adds")
            numbers += ["–" if "refused" in cell else f"{100 * cell[key] / entries:.0f}" for key in keys]
        found.append(" | ".join([f"| `{name}`", *numbers]) + " |")
    return found


def tables(cells: Cells) -> dict[str, list[str]]:
    """The lines of every table of the page, by its name there."""
    return {
        "aware": errors(cells, "aware", "outputs"),
        "plain": errors(cells, "plain", "entries"),
        "plain outputs": errors(cells, "plain", "outputs"),
        "equal": equal(cells),
        "costs": costs(cells),
    }


def fill(cells: Cells) -> None:
    """Put the tables into the page, each between its marks, and draw its figures."""
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in tables(cells).items():
        page = between_marks(page, name, "".join(f"{line}\n" for line in lines))
    PAGE.write_text(page, encoding="utf-8")
    draw(cells)


def draw(cells: Cells) -> None:
    """Error of the outputs against parameters and against mult-adds: a panel a network, a line a family."""
    FIGURES.mkdir(exist_ok=True)
    looks = styles(families(cells))
    labels = {"params": "parameters", "mult_adds": "mult-adds of a call on one input of the network"}
    for cost, label in labels.items():
        with drawing():
            figure, axes = new_figure(8.6, (1, 1, 1))
            for ax, (layer, title) in zip(axes, DRAWN.items(), strict=True):
                shares = []
                for name, look in looks.items():
                    mine = [
                        cell
                        for cell in cells
                        if (cell["layer"], cell["transform"], cell["within"]) == (layer, name, "")
                        and "refused" not in cell
                    ]
                    x = [100 * cell[cost] / (cell["in_features"] * cell["out_features"]) for cell in mine]
                    y = [cell["aware"]["outputs"] for cell in mine]
                    ax.plot(x, y, **marked(look), label=name if layer == next(iter(DRAWN)) else None)
                    shares += x
                log_axis(ax, "x", shares)
                ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f} %")
                ax.set_ylim(0, 1)
                ax.set_ylabel("error of the outputs")
                ax.set_title(title, loc="left")
            axes[-1].set_xlabel(f"{label}, of the dense layer's")
            figure.legend(loc="outside lower center", ncols=4)
            save(figure, FIGURES, f"families_{cost}", kinds=("svg",))
