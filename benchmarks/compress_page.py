"""The table of compressed networks in docs/compress.md, and its figure, from the result.

python benchmarks/compress_page.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import RESULTS
from understudy._util.quantities import format_count
from understudy.report.figures.canvas import drawing, marked, new_figure, save
from understudy.report.figures.style import COLOURS, MARKERS, Style

PAGE = Path(__file__).parent.parent / "docs" / "compress.md"
FIGURES = PAGE.parent / "figures"
HEAD = (
    "| network | method | kept | mult-adds | before | fitted to the weights | compressed | recovered |\n"
    "|---|---|---|--:|--:|--:|--:|--:|\n"
)
NETWORKS = {
    "resnet20": "ResNet-20, CIFAR-10: accuracy, %",
    "resnet56": "ResNet-56, CIFAR-10: accuracy, %",
    "wrn_16_2": "WRN-16-2, CIFAR-10: accuracy, %",
    "efficientnet_lite0": "EfficientNet-Lite0, ImageNet: accuracy, %",
    "minilm": "MiniLM, sentences: cosine to the original",
}
OURS = ("auto", "pivoted")  # they come first
WEIGHTS_ALONE, RECOVERED = "low rank fitted to the weights alone", ", recovered"
METHODS = ("auto", "pivoted", "low_rank", WEIGHTS_ALONE, "torch_pruning", "tensorly_torch", "narrower")
LOOKS = {
    name: Style(*colour, marker) for name, colour, marker in zip(METHODS, COLOURS, MARKERS, strict=False)
}
Cells = Sequence[dict[str, Any]]


def rows(cells: Cells) -> list[str]:
    """A line of Markdown for every cell that was measured, as docs/compress.md has them."""
    lines = []
    for cell in sorted(cells, key=lambda cell: (_place(cell), cell["method"] not in OURS, cell["seconds"])):
        if "refused" in cell:
            continue
        told = [_score(cell, part) for part in ("dense", "plain", "score", "recovered")]
        digits = 3 if _is_cosine(cell) else 2
        numbers = ["" if number is None else f"{number:.{digits}f}" for number in told]
        of = "mult-adds" if cell["metric"] == "mult_adds" else "parameters"
        kept = f"{100 * cell['share']:.0f} % of the {of}"
        work = "" if cell.get("mult_adds") is None else format_count(cell["mult_adds"])
        lines.append(f"| {cell['network']} | `{cell['method']}` | {kept} | {work} | {' | '.join(numbers)} |")
    return lines


def _place(cell: dict[str, Any]) -> tuple[object, ...]:
    return cell["network"], cell["metric"], -cell["share"]


def _score(cell: dict[str, Any], part: str) -> float | None:
    found: dict[str, float] = cell.get(part, {})
    return next(iter(found.values()), None)


def _is_cosine(cell: dict[str, Any]) -> bool:
    return "cosine" in cell["dense"]


def fill(cells: Cells) -> None:
    """Put the lines in their place, and draw the figure."""
    text = PAGE.read_text(encoding="utf-8")
    start = text.index(HEAD) + len(HEAD)
    end = text.index("\n\n", start)
    PAGE.write_text(text[:start] + "\n".join(rows(cells)) + text[end:], encoding="utf-8")
    draw(cells)


def lines_of(cells: Cells, network: str) -> dict[str, list[tuple[float, float]]]:
    """Share of the parameters and score, by what a line is called; what has one share alone makes no line."""
    mine = [cell for cell in cells if (cell["network"], cell["metric"]) == (network, "params")]
    found: dict[str, dict[float, float]] = {}
    for cell in mine:
        if "refused" in cell:
            continue
        name, share = cell["method"], 100 * cell["share"]
        recovered, score, plain = (_score(cell, part) for part in ("recovered", "score", "plain"))
        if recovered is not None:
            known = WEIGHTS_ALONE if name == "plain" else name
            found.setdefault(f"{known}{RECOVERED}", {})[share] = recovered
        if score is not None and name not in ("narrower", "plain"):
            found.setdefault(name, {})[share] = score
        if plain is not None and name in ("auto", "low_rank"):
            found.setdefault(WEIGHTS_ALONE, {})[share] = plain
    return {
        name: sorted(points.items())
        for name, points in found.items()
        if len(points) > 1 or name.endswith(RECOVERED)
    }


def draw(cells: Cells) -> None:
    """Score against the share of the parameters: a panel a network; hollow and larger where recovered."""
    FIGURES.mkdir(exist_ok=True)
    handles: dict[str, Any] = {}
    with drawing():
        figure, axes = new_figure(5.0, (1, 1), columns=3)
        *panels, key = axes
        for ax, (network, title) in zip(panels, NETWORKS.items(), strict=True):
            dense = max(_score(cell, "dense") or 0 for cell in cells if cell["network"] == network)
            ax.axhline(dense, color="#6b6b6b", linewidth=0.8, linestyle=":")
            for name, points in lines_of(cells, network).items():
                recovered = name.endswith(RECOVERED)
                look = LOOKS[name.removesuffix(RECOVERED)]
                hollow = {"markerfacecolor": "none", "markersize": 8, "linestyle": "none", "zorder": 4}
                [handles[name]] = ax.plot(
                    [share for share, _ in points],
                    [score for _, score in points],
                    **marked(look) | (hollow if recovered else {"linestyle": "-"}),
                )
            ax.set_title(title, loc="left")
            ax.set(xlim=(28, 97), ylim=(0, 1.05 * dense))
            ax.xaxis.set_major_formatter(lambda value, _: f"{value:g} %")
        for ax in panels[2:]:  # the lowest of each column
            ax.set_xlabel("parameters kept")
        key.axis("off")
        order = [name + end for name in METHODS for end in ("", RECOVERED) if name + end in handles]
        key.legend(handles=[handles[name] for name in order], labels=order, loc="center left")
        save(figure, FIGURES, "compress", kinds=("svg",))


if __name__ == "__main__":
    fill(json.loads((RESULTS / "compress.json").read_text())["cells"])
