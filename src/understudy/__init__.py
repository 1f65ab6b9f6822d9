"""Replace the linear parts of a network by structured stand-ins, and count truthfully what they cost."""

from understudy.counting.operations import UnknownOperationError, register_operation
from understudy.deploy.export import Exported, export
from understudy.deploy.graph import ExportError
from understudy.deploy.speed import Latency, speed
from understudy.deploy.tune import tune
from understudy.distil.attention import AttentionTransfer
from understudy.distil.decay import weight_decay_groups
from understudy.distil.frobenius import frobenius_decay
from understudy.distil.groups import parameter_groups
from understudy.distil.guidance import SelfGuidance
from understudy.fitting.calibrate import calibrate
from understudy.fitting.calibration import Calibration
from understudy.fitting.compress import Compression, compress, compression
from understudy.layers import Execution, Layer, stand_ins
from understudy.networks.models import UnknownModelError, create_model, example_input, list_models
from understudy.planning.budget import Budget, BudgetError
from understudy.planning.compare import Comparison, compare
from understudy.planning.plan import Plan
from understudy.planning.planner import plan
from understudy.planning.request import Request
from understudy.planning.sites import Site, Sites, sites
from understudy.students.cost import Cost, cost
from understudy.students.file import load, save
from understudy.students.lower import lower
from understudy.students.substitute import merge, substitute, substitute_
from understudy.students.weights import load_weights

from .transforms import Transform, get_transform, list_transforms, register_transform

__version__ = "0.2.0"

__all__ = [
    "AttentionTransfer",
    "Budget",
    "BudgetError",
    "Calibration",
    "Comparison",
    "Compression",
    "Cost",
    "Execution",
    "ExportError",
    "Exported",
    "Latency",
    "Layer",
    "Plan",
    "Request",
    "SelfGuidance",
    "Site",
    "Sites",
    "Transform",
    "UnknownModelError",
    "UnknownOperationError",
    "__version__",
    "calibrate",
    "compare",
    "compress",
    "compression",
    "cost",
    "create_model",
    "example_input",
    "export",
    "frobenius_decay",
    "get_transform",
    "list_models",
    "list_transforms",
    "load",
    "load_weights",
    "lower",
    "merge",
    "parameter_groups",
    "plan",
    "register_operation",
    "register_transform",
    "save",
    "sites",
    "speed",
    "stand_ins",
    "substitute",
    "substitute_",
    "tune",
    "weight_decay_groups",
]
