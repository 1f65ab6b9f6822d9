"""Experiments: a grid of runs, trained on one machine or many, their results, and what needs no training."""

from .cell import Cell
from .cell_costs import PlannedCell, plan_cells
from .checks import GridError
from .collect import new_result
from .curves import curves, sweep_curves
from .engine import Engine, Message
from .folder import find_results, read_index, read_results
from .grid import Grid, grid_names, load_grid, make_grid
from .local import LocalEngine
from .ray_engine import RayEngine
from .runner import Event, sweep
from .status import SweepStatus, sweep_status
from .task import Task, run_task
from .tradeoff import Tradeoff, every_transform

__all__ = [
    "Cell",
    "Engine",
    "Event",
    "Grid",
    "GridError",
    "LocalEngine",
    "Message",
    "PlannedCell",
    "RayEngine",
    "SweepStatus",
    "Task",
    "Tradeoff",
    "curves",
    "every_transform",
    "find_results",
    "grid_names",
    "load_grid",
    "make_grid",
    "new_result",
    "plan_cells",
    "read_index",
    "read_results",
    "run_task",
    "sweep",
    "sweep_curves",
    "sweep_status",
]
