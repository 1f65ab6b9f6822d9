"""A grid: one TOML file → cells, each a recipe with a name and an identity.

recipe = "demo"            # what every cell starts from
seeds = [0, 1]
unreachable = "skip"       # record a budget that cannot be met, and go on; "refuse" is the default

[settings]                 # of the recipe, changed for all
epochs = 8

[teacher]                  # settings of its own; or existing = "a run, a file of weights, or timm:NAME"
epochs = 12

[[students]]               # the product of its lists; as many such blocks as needed
transforms = ["low_rank", { Linear = "shuffle", "*.conv2" = "low_rank" }]   # or "all"
params = ["24k", "48k"]                   # or mult_adds, bytes, ratio, scale, knob
attention = [true, false]
crs = [true, false]
spatial = ["separable", "inside"]
turn = 1                   # blocks of a lower turn are trained first; 0 is the default

[students.settings]        # of the recipe, changed for this block
include = ["Linear"]

[[baselines]]
networks = ["wrn_16_1"]    # dense networks by name
narrow = ["24k"]           # the widest narrower network with at most so many parameters
shallow = ["24k"]          # the widest with half of the blocks
metric = "params"          # or "mult_adds": what they count
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from understudy import data
from understudy._util.shipped import read_toml, shipped_names
from understudy.train import load_recipe

from .cell import Cell, short_hash
from .checks import GridError, as_blocks, as_list, as_settings, as_table, as_turn, check_keys
from .expansion import Expansion, check_network

MOST_CELLS = 5000
_KEYS = (
    "recipe", "networks", "data", "seeds", "unreachable", "settings", "teacher", "students", "baselines",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Grid:
    """All cells, teachers first; the same cells in any order are the same grid.

    >>> from understudy.experiments import load_grid
    >>> grid = load_grid("digits")
    >>> grid.name, [cell.name for cell in grid.cells][:2]
    ('digits', ['teacher-seed-0', 'low_rank-30k-at-crs-seed-0'])
    """

    name: str
    cells: tuple[Cell, ...]
    skip_unreachable: bool = False

    @property
    def identity(self) -> str:
        """A hash of all cells, whatever their order."""
        return short_hash(sorted((cell.name, cell.id) for cell in self.cells))


def grid_names() -> list[str]:
    """The grids that come with the package.

    >>> from understudy.experiments import grid_names
    >>> "digits" in grid_names()
    True
    """
    return shipped_names("grid")


def load_grid(name: str | Path, data_folder: Path | None = None, *, teacher: str | None = None) -> Grid:
    """A shipped grid by name, or one from a TOML file.

    `teacher` stands in the place of the grid's own: a run, a file of weights, or timm:NAME.

    >>> from understudy.experiments import load_grid
    >>> grid = load_grid("digits", teacher="timm:resnet18")
    >>> {cell.role for cell in grid.cells} == {"student", "baseline"}
    True
    """
    try:
        table = read_toml("grid", name)
    except ValueError as error:
        raise GridError(str(error)) from error
    try:
        given = {} if teacher is None else {"teacher": {"existing": teacher}}
        return make_grid(Path(name).stem, {**table, **given}, data_folder)
    except ValueError as error:
        raise GridError(f"grid {name}: {error}") from error


def make_grid(name: str, table: Mapping[str, Any], data_folder: Path | None = None) -> Grid:
    """The grid of a table such as TOML gives; a ValueError names what is wrong with it.

    >>> from understudy.experiments import make_grid
    >>> students = {"transforms": ["low_rank", "shuffle"], "ratio": [0.1, 0.3]}
    >>> grid = make_grid("mine", {"recipe": "demo", "seeds": [0, 1], "students": students})
    >>> len(grid.cells)  # eight students and their teacher
    9
    """
    check_keys("a grid", table, _KEYS)
    if "recipe" not in table:
        raise GridError("a grid needs a recipe to start from, such as recipe = 'demo'")
    policy = table.get("unreachable", "refuse")
    if policy not in ("refuse", "skip"):
        raise GridError(f"unreachable is {policy!r}, not 'refuse' or 'skip'")
    settings, options = as_settings("[settings]", table.get("settings", {}))
    base = load_recipe(str(table["recipe"]), settings)
    base = base.replaced({"data": table.get("data", base.data)})
    networks = as_list("networks", table.get("networks", base.network), str)
    for network in networks:
        check_network(network)
    expansion = Expansion(
        base,
        data.facts(base.data, data_folder),
        networks,
        as_list("seeds", table.get("seeds", 0), int),
        as_table("[teacher]", table.get("teacher", {})),
        options,
    )
    blocks = [(block, expansion.students) for block in as_blocks("students", table)]
    blocks += [(block, expansion.baselines) for block in as_blocks("baselines", table)]
    in_turn = sorted(blocks, key=lambda item: as_turn(item[0]))
    made = itertools.chain.from_iterable(expand(block) for block, expand in in_turn)
    taught = list(itertools.islice(made, MOST_CELLS + 1))
    if len(taught) > MOST_CELLS:
        raise GridError(f"the grid has more than {MOST_CELLS:,} cells: sweep it in parts")
    if not taught:
        raise GridError("the grid has neither [[students]] nor [[baselines]]")
    used = {name for cell in taught for name, _ in cell.recipe.request.options}
    for option in options:
        if option not in used:
            raise GridError(f"[settings] sets the option {option!r}, which no transform of the grid has")
    cells = [*expansion.teachers(), *taught]
    _refuse_duplicates(cells)
    return Grid(name, tuple(_with_unique_names(cells)), policy == "skip")


def _refuse_duplicates(cells: Sequence[Cell]) -> None:
    names: dict[str, str] = {}
    for cell in cells:
        if cell.id in names:
            other = names[cell.id]
            problem = "is listed twice" if other == cell.name else f"is the same run as {other}"
            raise GridError(f"{cell.name} {problem} (identity {cell.id}): remove one")
        names[cell.id] = cell.name


def _with_unique_names(cells: Sequence[Cell]) -> Iterator[Cell]:
    """The first of a name keeps it, also when the grid grows; later ones get their identity behind it.

    Names that differ in case alone are one name: they may be one file.
    """
    taken: set[str] = set()
    for cell in cells:
        same = cell.name.lower() in taken
        yield dataclasses.replace(cell, name=f"{cell.name}-{cell.id[:6]}") if same else cell
        taken.add(cell.name.lower())
