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
from understudy._util.names import check_label, check_name
from understudy._util.records import RecordError, VersionError, read_record, write_record
from understudy.results import FORMAT as RESULT_FORMAT
from understudy.results import Result, ResultsError

from .checks import GridError
from .grid import Grid

FORMAT = 2  # of grid.json
INDEX, _RESULTS, _RUNS = "grid.json", "results", "runs"
Record = TypeVar("Record")


class OtherVersionError(ResultsError):
    """Results that another version wrote: nothing is wrong with them, but not here."""


@dataclasses.dataclass(frozen=True)
class IndexEntry:
    """A cell of a grid: its name and the identity of its run."""

    name: str
    id: str

    def __post_init__(self) -> None:
        check_name("name", self.name)


@dataclasses.dataclass(frozen=True)
class Index:
    """The grid that a folder belongs to."""

    understudy: str
    name: str
    identity: str
    cells: tuple[IndexEntry, ...]

    def __post_init__(self) -> None:
        check_label("name", self.name)
        if len({entry.name.lower() for entry in self.cells}) < len(self.cells):
            raise ValueError("two cells have one name")


def read_index(out: Path) -> Index:
    """The grid of a sweep's folder; a ResultsError says what is wrong with any other folder.

    >>> from pathlib import Path
    >>> from understudy.experiments import make_grid, read_index, sweep
    >>> table = {"recipe": "demo", "unreachable": "skip", "baselines": {"narrow": "10"}}
    >>> grid = make_grid("small", {**table, "teacher": {"existing": "timm:resnet18"}})
    >>> _ = sweep(grid, Path("sweep"))
    >>> read_index(Path("sweep")).identity == grid.identity
    True
    """
    if not (out / INDEX).is_file():
        raise ResultsError(f"{out} holds no sweep (no {INDEX})")
    return _read(Index, out / INDEX, FORMAT)


def read_results(out: Path) -> list[Result]:
    """The results of all cells, in the grid's order; a cell without one yet is left out.

    >>> from pathlib import Path
    >>> from understudy.experiments import make_grid, read_results, sweep
    >>> table = {"recipe": "demo", "unreachable": "skip", "baselines": {"narrow": "10"}}
    >>> grid = make_grid("small", {**table, "teacher": {"existing": "timm:resnet18"}})
    >>> read_results(Path("sweep")) == sweep(grid, Path("sweep"))
    True
    """
    found = find_results(out)
    for problem in found.passed_over:
        raise problem
    return found.results


@dataclasses.dataclass(frozen=True)
class Found:
    """The results that can be read, and why others cannot."""

    results: list[Result]
    passed_over: list[ResultsError]


def find_results(out: Path) -> Found:
    """The results of all cells, as `read_results`; one that cannot be read is told and stops no other.

    >>> from pathlib import Path
    >>> from understudy.experiments import make_grid, find_results, sweep
    >>> table = {"recipe": "demo", "unreachable": "skip", "baselines": {"narrow": "10"}}
    >>> grid = make_grid("small", {**table, "teacher": {"existing": "timm:resnet18"}})
    >>> [result] = sweep(grid, Path("sweep"))
    >>> _ = Path("sweep", "results", f"{result.name}.json").write_text("cut sh")
    >>> found = find_results(Path("sweep"))
    >>> found.results, len(found.passed_over)
    ([], 1)
    """
    found = Found([], [])
    for entry in read_index(out).cells:
        path = _result_file(out, entry.name)
        if not path.exists():
            continue
        try:
            result = _read(Result, path, RESULT_FORMAT)
            if (result.name, result.id) != (entry.name, entry.id):
                raise ResultsError(f"{path} is the result of another cell, {result.name}")
            found.results.append(result)
        except ResultsError as error:
            found.passed_over.append(error)
    return found


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
    except VersionError as error:
        raise OtherVersionError(f"{error}: use the version that wrote it, or another --out") from error
    except (RecordError, OSError) as error:
        raise ResultsError(str(error)) from error


@contextlib.contextmanager
def opened(out: Path, grid: Grid) -> Iterator[None]:
    """Make the folder this grid's, and keep other sweeps out of it meanwhile."""
    if out.exists() and not out.is_dir():
        raise GridError(f"{out} is a file: choose another --out")
    if out.is_dir() and not (out / INDEX).exists():
        names = [path.name for path in out.iterdir()]
        strange = [name for name in names if name != ".lock" and not name.startswith(f".{INDEX}.")]
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
    if (out / INDEX).exists():
        index = read_index(out)
        for problem in find_results(out).passed_over:
            if isinstance(problem, OtherVersionError):  # before anything is changed
                raise problem
        changed = sorted(entry.name for entry in index.cells if entry not in entries)
        if changed:
            raise GridError(
                f"{out} belongs to another grid, {index.name}: {len(changed)} of its {len(index.cells)} "
                f"cells are not in this one, such as {changed[0]}; choose another --out"
            )
    for folder in (_RESULTS, _RUNS):
        (out / folder).mkdir(exist_ok=True)
    for leftover in [*out.glob(f".{INDEX}.*"), *(out / _RESULTS).glob(".*.json.*")]:
        leftover.unlink()  # half written by a sweep that was killed
    write_record(out / INDEX, Index(__version__, grid.name, grid.identity, entries), FORMAT)
