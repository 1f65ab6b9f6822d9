"""Training with the original as teacher: recipes, losses, decay, the loop, and runs that resume."""

from .config import RunError
from .divergence import DivergedError
from .evaluation import Evaluation, evaluate, evaluate_trained
from .figures import Epoch, Errors
from .job import Job, load_data, prepare
from .loop import Fitted, fit, train
from .recipe import (
    Recipe,
    indifferent_settings,
    load_recipe,
    recipe_names,
    recipe_settings,
    settings_by_source,
)
from .recover import recover
from .run import Run
from .teacher import teacher_identity

__all__ = [
    "DivergedError",
    "Epoch",
    "Errors",
    "Evaluation",
    "Fitted",
    "Job",
    "Recipe",
    "Run",
    "RunError",
    "evaluate",
    "evaluate_trained",
    "fit",
    "indifferent_settings",
    "load_data",
    "load_recipe",
    "prepare",
    "recipe_names",
    "recipe_settings",
    "recover",
    "settings_by_source",
    "teacher_identity",
    "train",
]
