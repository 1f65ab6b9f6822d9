"""Experiments: a grid of runs, trained on one machine or many, their results, and what needs no training."""

from .cell import Cell
from .checks import GridError
from .curves import curves
from .grid import Grid, grid_names, load_grid, make_grid
from .planning import PlannedCell, plan_cells
from .results import ResultsError, read_results
from .runner import Event, sweep
from .status import SweepStatus, sweep_status

__all__ = [
    "Cell",
    "Event",
    "Grid",
    "GridError",
    "PlannedCell",
    "ResultsError",
    "SweepStatus",
    "curves",
    "grid_names",
    "load_grid",
    "make_grid",
    "plan_cells",
    "read_results",
    "sweep",
    "sweep_status",
]
