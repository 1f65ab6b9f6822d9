"""Replace the linear parts of a network by structured stand-ins, and count truthfully what they cost."""

from .budget import BudgetError
from .checkpoint import load, save
from .cost import Cost, cost
from .models import create_model, example_input, list_models
from .operations import UnknownOperationError
from .plan import Plan
from .planner import plan
from .sites import Site, Sites, sites
from .substitute import merge, substitute, substitute_
from .train.attention import AttentionTransfer
from .train.decay import weight_decay_groups
from .transforms import Transform, transforms
from .weights import load_weights

__version__ = "0.1.0"

__all__ = [
    "AttentionTransfer",
    "BudgetError",
    "Cost",
    "Plan",
    "Site",
    "Sites",
    "Transform",
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
