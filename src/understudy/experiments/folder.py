"""The folder of a sweep: it belongs to one grid, and one sweep at a time.

DIR/grid.json            which grid this folder belongs to, and its cells in order (`Index`)
DIR/runs/CELL/           the run
DIR/results/CELL.json    its result
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from understudy import __version__
from understudy._util.files import lock
from understudy._util.records import RecordError, read_record, write_record
from understudy.results import FORMAT as RESULT_FORMAT
from understudy.results import Result, ResultsError

from .checks import GridError
from .grid import Grid

FORMAT = 2  # of grid.json
_INDEX, _RESULTS, _RUNS = "grid.json", "results", "runs"
Record = TypeVar("Record")


@dataclasses.dataclass(frozen=True)
class IndexEntry:
    """A cell of a grid: its name and the identity of its run."""

    name: str
    id: str


@dataclasses.dataclass(frozen=True)
class Index:
    """The grid that a folder belongs to."""

    understudy: str
    name: str
    identity: str
    cells: tuple[IndexEntry, ...]


def read_index(out: Path) -> Index:
    """The grid of a sweep's folder; a ResultsError says what is wrong with any other folder."""
    if not (out / _INDEX).is_file():
        raise ResultsError(f"{out} holds no sweep (no {_INDEX})")
    return _read(Index, out / _INDEX, FORMAT)


def read_results(out: Path) -> list[Result]:
    """The results of all cells, in the grid's order; a cell without one yet is left out."""
    paths = [_result_file(out, entry.name) for entry in read_index(out).cells]
    return [_read(Result, path, RESULT_FORMAT) for path in paths if path.exists()]


def write_result(out: Path, result: Result) -> None:
    """Write one result whole."""
    write_record(_result_file(out, result.name), result, RESULT_FORMAT)


def run_folder(out: Path, name: str) -> Path:
    """Where the run of a cell lies."""
    return out / _RUNS / name


def _result_file(out: Path, name: str) -> Path:
    return out / _RESULTS / f"{name}.json"


def _read(kind: type[Record], path: Path, version: int) -> Record:
    try:
        return read_record(kind, path, version)
    except RecordError as error:
        raise ResultsError(f"{error}: use the version that wrote it, or another --out") from error


@contextlib.contextmanager
def opened(out: Path, grid: Grid) -> Iterator[None]:
    """Make the folder this grid's, and keep other sweeps out of it meanwhile."""
    if out.exists() and not out.is_dir():
        raise GridError(f"{out} is a file: choose another --out")
    if out.is_dir() and not (out / _INDEX).exists():
        names = [path.name for path in out.iterdir()]
        strange = [name for name in names if name != ".lock" and not name.startswith(f".{_INDEX}.")]
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
    entries = tuple(IndexEntry(cell.name, cell.id) for cell in grid.cells)
    if (out / _INDEX).exists():
        index = read_index(out)
        read_results(out)  # raises on what another version wrote, before anything is changed
        changed = sorted(entry.name for entry in index.cells if entry not in entries)
        if changed:
            raise GridError(
                f"{out} belongs to another grid, {index.name}: {len(changed)} of its {len(index.cells)} "
                f"cells are not in this one, such as {changed[0]}; choose another --out"
            )
    for folder in (_RESULTS, _RUNS):
        (out / folder).mkdir(exist_ok=True)
    for leftover in [*out.glob(f".{_INDEX}.*"), *(out / _RESULTS).glob(".*.json.*")]:
        leftover.unlink()  # half written by a sweep that was killed
    write_record(out / _INDEX, Index(__version__, grid.name, grid.identity, entries), FORMAT)
