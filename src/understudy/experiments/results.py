"""Results: one JSON file for each cell, from its run folder, written whole.

DIR/grid.json            which grid this folder belongs to, and its cells in order
DIR/runs/CELL/           the run
DIR/results/CELL.json    its result; what a clock decides is in `speed`, `seconds` and the curve's `seconds`
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy import __version__
from understudy._util.files import whole_file
from understudy.train import Recipe, Run

from .planning import PlannedCell

FORMAT = 1
Result = dict[str, Any]


class ResultsError(ValueError):
    """A folder whose results are not what this version reads."""


def new_result(grid: str, planned: PlannedCell) -> Result:
    """The result of a cell before it has run."""
    cell, recipe = planned.cell, planned.cell.recipe
    return {
        "format": FORMAT,
        "understudy": __version__,
        "grid": grid,
        "name": cell.name,
        "id": cell.id,
        "role": cell.role,
        "status": "waiting" if planned.costs else "unreachable",
        "reason": planned.reason,
        "recipe": recipe.to_dict(),
        "network": recipe.network,
        "data": recipe.data,
        "transform": recipe.request.label,
        "budget": cell.budget,
        "attention": recipe.attention,
        "decay": recipe.decay,
        "seed": recipe.seed,
        "teacher": cell.teacher,
        "planned": planned.costs,
        "costs": None,
        "error": None,
        "speed": None,
        "curve": [],
        "commit": None,
        "machine": None,
        "seconds": 0.0,
    }


def with_outcome(
    result: Mapping[str, Any], folder: Path, status: str, reason: str, commit: str | None
) -> Result:
    """A result as the run in `folder` has left it."""
    curve = Run(folder, Recipe()).metrics()
    done: Result = {
        **result,
        "status": status,
        "reason": reason,
        "curve": [{key: value for key, value in line.items() if key != "test_images"} for line in curve],
        "commit": commit,
        "machine": _read(folder / "machine.json") if (folder / "machine.json").exists() else None,
        "seconds": round(sum(line["seconds"] for line in curve), 2),
    }
    if status == "finished":
        last = _read(folder / "result.json")
        done["costs"] = {key: last[key] for key in ("params", "mult_adds", "ideal_mult_adds", "bytes")}
        done["error"] = {
            "top1": last["test_error"],
            "top5": last["test_top5_error"],
            "test_images": last["test_images"],
        }
    return done


def write_result(out: Path, result: Mapping[str, Any]) -> None:
    """Write one result whole."""
    _write(out / "results" / f"{result['name']}.json", result)


def write_index(out: Path, content: Mapping[str, Any]) -> None:
    """Write grid.json whole."""
    _write(out / "grid.json", {"format": FORMAT, "understudy": __version__, **content})


def read_index(out: Path) -> dict[str, Any]:
    """The grid.json of a sweep's folder; a ResultsError says what is wrong with any other."""
    if not (out / "grid.json").is_file():
        raise ResultsError(f"{out} holds no sweep (no grid.json)")
    return _read(out / "grid.json")


def read_results(out: Path) -> list[Result]:
    """The results of all cells, in the grid's order; a cell without one yet is left out."""
    paths = [out / "results" / f"{name}.json" for name in read_index(out)["cells"]]
    return [_read(path) for path in paths if path.exists()]


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, of the format that this version knows where it says one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultsError(f"{path} is not JSON ({error}): it was not written by a sweep") from error
    if not isinstance(content, dict):
        raise ResultsError(f"{path} holds no table: it was not written by a sweep")
    if path.name not in _OF_RUNS and content.get("format") != FORMAT:
        raise ResultsError(
            f"{path} has format {content.get('format')!r}, written by understudy "
            f"{content.get('understudy', '?')}; this is {__version__}, which reads format {FORMAT}: "
            "use the other version, or another --out"
        )
    return content


_OF_RUNS = ("result.json", "machine.json")


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
