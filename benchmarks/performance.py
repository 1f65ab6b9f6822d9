"""Fill docs/performance.md from the committed benchmarks: its tables, and the figures beside it.

understudy bench --out benchmarks/results/bench.json
python benchmarks/rest.py --write
python benchmarks/performance.py

What was measured again, on other processors too, stands beside it: bench_again, bench_avx2, bench_third.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marks import between_marks
from understudy._util.provenance import Machine
from understudy._util.records import from_plain
from understudy.bench.figure import exponent, figure, growth, times_by_width
from understudy.bench.record import Bench
from understudy.bench.tables import sections

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "bench.json"
REST = RESULT.with_name("rest.json")
OTHERS = {
    "On the first kind of processor again, all runtimes in one run": RESULT.with_name("bench_again.json"),
    "On a processor without AVX-512": RESULT.with_name("bench_avx2.json"),
    "On a third processor, of AMD with AVX-512": RESULT.with_name("bench_third.json"),
}
PAGE = ROOT / "docs" / "performance.md"
FIGURE = ROOT / "docs" / "performance.svg"
GROWTH = ROOT / "docs" / "performance_growth.svg"
_GROWING, _BATCH = "tokens", 32
SET_BESIDE = ("ms", "calls_ms", "roof_ms")  # each with the dense network's time over it
_MORE_THAN_IDEAL = (
    "Layers of tokens run by oneDNN where the dense layer is run by MKL, because [products\n"
    "lag](deployment.md#how-a-stand-in-runs) on this processor, are better than ideal."
)
_NOTHING = "No result is committed yet.\n"


def filled(page: str, bench: Bench | None) -> str:
    """The page with everything between its two marks as the benchmark says."""
    measured = _NOTHING
    if bench is not None:
        figures = f"![Times quicker against times fewer mult-adds]({FIGURE.name})"
        if GROWTH.is_file():
            figures += f"\n\n![Time against width, and its power]({GROWTH.name})"
        measured = f"{figures}\n\n{sections(bench)}{other_lines()}{rest_lines()}"
    return between_marks(page, "measured", f"\n{measured}\n")


def other_lines() -> str:
    """What other processors make of it; nothing of one where that was not measured."""
    return "".join(
        f"\n## {heading}\n\n{sections(Bench.load(file))}"
        for heading, file in OTHERS.items()
        if file.is_file()
    )


def rest_lines() -> str:
    """How near students are to their roofline; nothing where that was not measured."""
    if not REST.is_file():
        return ""
    rest = json.loads(REST.read_text(encoding="utf-8"))
    machine = from_plain(Machine, rest["provenance"]["machine"])
    lines = [
        f"\n## How near that is to what a machine can do: {rest['network']} at {rest['params']}\n",
        "In a run of its own (`python benchmarks/rest.py`, `benchmarks/results/rest.json`), in eager mode.",
        f"Machine: {machine}. Commit {rest['provenance']['commit']}.\n",
        "By the roofline every operation of a student takes its mult-adds at the pace of a large product of",
        f"matrices, here {rest['gmac_s']:.0f} GMAC/s, or as long as inputs, weights and output are copied in",
        "its place, whichever is longer. What beats that has kernels that are quicker than the product of",
        "matrices is there. Joined: the same without norms and activations, which other runtimes join to the",
        "product before. Calls alone: the student's calls of PyTorch, each timed where it stands, the least",
        "times added up, so that nothing of ours is in it. The times quicker are the dense network's time",
        "over each. Last, what is not in stand-ins and so stays.\n",
        "| batch |  | time, eager | times quicker | calls alone | times quicker | roofline | times quicker "
        "| joined | not in stand-ins |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for batch, found in rest["batches"].items():
        for name, one in found["students"].items():
            cells = [
                *(f"{one[key]:.1f} ms | {found['dense_ms'] / one[key]:.1f}×" for key in SET_BESIDE),
                *(f"{one[key]:.1f} ms" for key in ("fused_roof_ms", "rest_ms")),
            ]
            lines.append(f"| {batch} | `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *wide_lines(rest["layers"]), ""])


def wide_lines(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many times as quick as dense wide layers are, and would be if a layer were its calls alone."""
    lines = [
        "The same of wide layers at a tenth of the parameters, in eager mode: how many times as quick as the",
        "dense layer they are, and would be by the least times of PyTorch's calls alone, beside the ideal.",
        *([_MORE_THAN_IDEAL] if any(one["realised"] > one["ideal"] for one in layers) else []),
        "",
        "| layer | channels | batch |  | times quicker | calls alone | ideal | share of the ideal |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in layers:
        times = " | ".join(f"{one[key]:.1f}×" for key in ("realised", "calls_alone", "ideal"))
        lines.append(
            f"| {one['what']} | {one['width']} | {one['batch']} | `{one['transform']}` | {times} "
            f"| {one['realised'] / one['ideal']:.2f} |"
        )
    return lines


def committed() -> Bench | None:
    """The result, where there is one."""
    return Bench.load(RESULT) if RESULT.is_file() else None


def main() -> None:
    bench = committed()
    if bench is not None:
        FIGURE.write_text(figure(bench), encoding="utf-8")
        if any(exponent(by_width) for by_width in times_by_width(bench, _GROWING, _BATCH).values()):
            GROWTH.write_text(growth(bench, _GROWING, _BATCH), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), bench), encoding="utf-8")


if __name__ == "__main__":
    main()
