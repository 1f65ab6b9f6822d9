"""The folder of a sweep: it belongs to one grid, and one sweep at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from understudy._util.files import lock

from .checks import GridError
from .grid import Grid
from .results import read_index, read_results, write_index


@contextlib.contextmanager
def opened(out: Path, grid: Grid) -> Iterator[None]:
    """Make the folder this grid's, and keep other sweeps out of it meanwhile."""
    if out.exists() and not out.is_dir():
        raise GridError(f"{out} is a file: choose another --out")
    if out.is_dir() and not (out / "grid.json").exists():
        names = [path.name for path in out.iterdir()]
        strange = [name for name in names if name != ".lock" and not name.startswith(".grid.json.")]
        if strange:
            raise GridError(f"{out} holds no sweep but {strange[0]}: choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as stream:
        if not lock(stream):
            raise GridError(f"another sweep is at work in {out}")
        _claim(out, grid)
        yield


def _claim(out: Path, grid: Grid) -> None:
    """Refuse a folder of another grid; one whose cells are all in this grid is taken up, and grows."""
    ids = {cell.name: cell.id for cell in grid.cells}
    if (out / "grid.json").exists():
        index = read_index(out)
        held: dict[str, str] = index["ids"]
        read_results(out)  # raises on what another version wrote, before anything is changed
        changed = sorted(name for name, identity in held.items() if ids.get(name) != identity)
        if changed:
            raise GridError(
                f"{out} belongs to another grid, {index['name']}: {len(changed)} of its {len(held)} "
                f"cells are not in this one, such as {changed[0]}; choose another --out"
            )
    for folder in ("results", "runs"):
        (out / folder).mkdir(exist_ok=True)
    for leftover in [*out.glob(".grid.json.*"), *(out / "results").glob(".*.json.*")]:
        leftover.unlink()  # half written by a sweep that was killed
    write_index(out, {"identity": grid.identity, "name": grid.name, "cells": list(ids), "ids": ids})
