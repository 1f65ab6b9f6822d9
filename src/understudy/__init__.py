"""Replace the linear parts of a network by structured stand-ins, and count truthfully what they cost."""

from understudy.counting.operations import UnknownOperationError
from understudy.distil.attention import AttentionTransfer
from understudy.distil.decay import weight_decay_groups
from understudy.networks.models import UnknownModelError, create_model, example_input, list_models
from understudy.planning.budget import BudgetError
from understudy.planning.plan import Plan
from understudy.planning.planner import plan
from understudy.planning.sites import Site, Sites, sites
from understudy.students.cost import Cost, cost
from understudy.students.file import load, save
from understudy.students.substitute import merge, substitute, substitute_
from understudy.students.weights import load_weights

from .transforms import Transform, transforms

__version__ = "0.1.0"

__all__ = [
    "AttentionTransfer",
    "BudgetError",
    "Cost",
    "Plan",
    "Site",
    "Sites",
    "Transform",
    "UnknownModelError",
    "UnknownOperationError",
    "__version__",
    "cost",
    "create_model",
    "example_input",
    "list_models",
    "load",
    "load_weights",
    "merge",
    "plan",
    "save",
    "sites",
    "substitute",
    "substitute_",
    "transforms",
    "weight_decay_groups",
]
