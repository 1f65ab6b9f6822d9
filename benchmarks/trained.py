"""Trained networks at 50, 30 and 15 %: every transform, before and after the same short recovery.

    python benchmarks/trained.py --weights DIR --cifar DIR --imagenet DIR --write [--only wrn_16_2]

Each layer is fitted by itself; some steps with the original as teacher follow, without labels. Beside them
stands Torch-Pruning at the same parameters and at the same mult-adds. Every cell is written as it ends: the
same command goes on. What has nothing left at a share is not tried at a smaller one. `--write` fills the
tables of docs/study.md too; `compress.py` says what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compress import ALONE, SLOW, Cell, arguments, measure
from marks import between_marks
from measure import RESULTS
from study_page import put
from understudy.experiments import every_transform

PAGE = Path(__file__).parent.parent / "docs" / "study.md"
NETWORKS = ("wrn_16_2", "resnet56", "efficientnet_lite0")
METRICS = ("params", "mult_adds")
PEER = "torch_pruning"
SHARES = (0.5, 0.3, 0.15)
UPDATES = {"wrn_16_2": 40, "resnet56": 40, "efficientnet_lite0": 64}  # two epochs of the last
LEFT = "are left at"
# Before recovery began with the original's last layer where the student's was scaled and moved.
OLDER = (
    *("ca185aea0026", "9f3190a7075e", "ca49cc80aa45", "ea1f248e010e", "1c13014cd85d-dirty", "288b241f64cc"),
    *("288b241f64cc-dirty", "325afa3b61f2", "50c944b76742", "ddb189f11fe6", "e3afd01c3575"),
)
NOTHING = 0.05  # of the original's score: a method that has less left is not tried at smaller shares
LEAN = ("low_rank", "shuffle", "btt", "tucker")  # those that save mult-adds, beside what pruning saves


def cells() -> list[Cell]:
    """A network after the other; the slow families last."""
    methods = [PEER, *(name for name in every_transform() if name not in SLOW)]
    found = [
        Cell(network, method, share, metric, updates=UPDATES[network])
        for network in NETWORKS
        for metric, asked in zip(METRICS, (methods, [PEER, *LEAN]), strict=True)
        for share in SHARES
        for method in asked
    ]
    return found + [
        Cell(network, name, share, updates=UPDATES[network])
        for share in SHARES
        for network in NETWORKS
        for name in SLOW
    ]


def why_not(cell: Cell, done: Sequence[dict[str, Any]]) -> str:
    """What is left of a network at a larger share, where that is next to nothing."""
    for other in done:
        if (other["network"], other["method"], other["metric"]) != (cell.network, cell.method, cell.metric):
            continue
        if other["share"] <= cell.share or "refused" in other:
            continue
        after, dense = other["recovered"]["top1"], other["dense"]["top1"]
        if after < NOTHING * dense:
            return f"{after:.1f} of {dense:.1f} % {LEFT} {100 * other['share']:.0f} %"
    return ""


def lines(done: Sequence[dict[str, Any]]) -> list[str]:
    """A row for every network, budget and method: before → after at every share."""
    table: dict[tuple[str, str, str], dict[float, str]] = {}
    for cell in done:
        row = table.setdefault((cell["network"], cell["metric"], cell["method"]), {})
        row[cell["share"]] = _shown(cell)
    return [
        f"| {network} | {_metric(metric)} | `{method}` | "
        + " | ".join(row.get(share, "") for share in SHARES)
        + " |"
        for (network, metric, method), row in sorted(table.items(), key=_network_and_metric)
    ]


def _shown(cell: dict[str, Any]) -> str:
    """Before → after, marked where recovery was an older one; why there is nothing where it was refused."""
    if "refused" in cell:
        return "nothing left" if LEFT in cell["refused"] else "out of reach"
    mark = "†" if cell["commit"] in OLDER and cell["method"] not in ALONE else ""
    return f"{cell['score']['top1']:.1f} → {cell['recovered']['top1']:.1f}{mark}"


def _network_and_metric(row: tuple[tuple[str, str, str], object]) -> tuple[int, int]:
    (network, metric, _), _ = row
    return NETWORKS.index(network), METRICS.index(metric)


def beside_pruning(done: Sequence[dict[str, Any]]) -> str:
    """In how many cells a structure has more left after recovery than pruning has; where it has not."""
    kept = {
        (cell["network"], cell["metric"], cell["share"], cell["method"]): cell["recovered"]["top1"]
        for cell in done
        if "recovered" in cell
    }
    pairs = {
        key: (score, rival)
        for key, score in kept.items()
        if key[-1] != PEER and (rival := kept.get((*key[:-1], PEER))) is not None
    }
    behind: dict[tuple[str, str, str], list[str]] = {}
    for (network, metric, share, method), (score, rival) in pairs.items():
        if score <= rival:
            behind.setdefault((method, network, _metric(metric)), []).append(f"{100 * share:.0f}")
    places = (
        f"`{method}` on {network} by {metric} at {', '.join(shares)} %"
        for (method, network, metric), shares in sorted(behind.items())
    )
    ahead = len(pairs) - sum(map(len, behind.values()))
    told = f"After recovery {ahead} of {len(pairs)} students have more left than pruning at the same share"
    return f"{told}; not {'; not '.join(places)}.\n" if behind else f"{told}.\n"


def _metric(name: str) -> str:
    return name.replace("_", "-").replace("params", "parameters")


def filled(page: str, done: Sequence[dict[str, Any]]) -> str:
    """The page with its table, and the sentence above it, as the result says."""
    return between_marks(put(page, "trained", lines(done)), "pruning", beside_pruning(done))


def committed() -> list[dict[str, Any]]:
    """The cells of the result, where there is one."""
    path = RESULTS / "trained.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["cells"] if path.is_file() else []
    return found


def main() -> None:
    given = arguments((__doc__ or "").partition("\n")[0]).parse_args()
    done = measure("trained", cells(), given, quick=True, why_not=why_not)
    if given.write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), done), encoding="utf-8")


if __name__ == "__main__":
    main()
