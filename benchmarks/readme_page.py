"""The three results of README.md, from the committed ones.

python benchmarks/readme_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marks import between_marks
from measure import RESULTS
from understudy._util.quantities import format_bytes, format_count
from understudy.bench.record import Bench

PAGE = Path(__file__).parent.parent / "README.md"
_NAMES = {"onnx": "ONNX Runtime", "openvino": "OpenVINO"}


def lines() -> list[str]:
    """A table: what was done, what came of it, where it is written down."""
    cells = json.loads((RESULTS / "compress.json").read_text(encoding="utf-8"))["cells"]
    peer = _cell(cells, "wrn_16_2", "torch_pruning", "params")
    return [
        "| what | result | source |",
        "|---|---|---|",
        f"| ResNet-56, `-t auto`, nothing trained | {_halved(cells, 'resnet56')} | {_source('compress')} |",
        f"| WRN-16-2, `-t auto`, nothing trained | {_halved(cells, 'wrn_16_2')}; Torch-Pruning in half of "
        f"the parameters {_score(peer, 'score')} %, after {peer['seconds'] / 60:.0f} minutes with the "
        f"original as teacher {_score(peer, 'recovered')} % | {_source('compress')} |",
        _speed(Bench.load(RESULTS / "bench.json")),
    ]


def _halved(cells: list[dict[str, Any]], network: str) -> str:
    """What is left of a network in half of its parameters, and in half of its mult-adds."""
    params, mult_adds = (_cell(cells, network, "auto", metric) for metric in ("params", "mult_adds"))
    return (
        f"CIFAR-10 accuracy {_score(params, 'dense')} % → {_score(params, 'score')} % in half of its "
        f"parameters, {_score(mult_adds, 'score')} % in half of its mult-adds"
    )


def _cell(cells: list[dict[str, Any]], network: str, method: str, metric: str) -> dict[str, Any]:
    """The cell of a network in half."""
    wanted = (network, method, metric, 0.5)
    [found] = [
        cell
        for cell in cells
        if (cell["network"], cell["method"], cell["metric"], cell["share"]) == wanted
        and "refused" not in cell
    ]
    return found


def _score(cell: dict[str, Any], part: str) -> str:
    [score] = cell[part].values()
    return f"{score:.2f}"


def _source(name: str) -> str:
    return f"[{name}.json](benchmarks/results/{name}.json)"


def _speed(bench: Bench) -> str:
    """How many times quicker low rank is than the dense WRN-28-10, in the runtimes that ship."""
    rows = {
        row.cell.runtime: row
        for row in bench.rows()
        if (row.cell.what, row.cell.batch, row.measured.subject) == ("wrn_28_10", 8, "low_rank")
        and row.cell.runtime in _NAMES
        and row.cell.mode == "inference"
    }
    times = ", ".join(f"in {_NAMES[name]} {row.speedup:.1f} times" for name, row in sorted(rows.items()))
    row = rows["onnx"]
    sizes = (row.measured.file_bytes or 0, row.dense.file_bytes or 0)
    return (
        f"| WRN-28-10 as `low_rank` in {format_count(row.measured.params)} of its "
        f"{format_count(row.dense.params)} parameters, still to be trained "
        f"| {times} as quick (batch 8, two cores); {format_bytes(sizes[0])} instead of "
        f"{format_bytes(sizes[1])} | {_source('bench')} |"
    )


def filled(page: str) -> str:
    """The page with what is between its two marks as the results say."""
    return between_marks(page, "results", "".join(f"{line}\n" for line in lines()))


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
