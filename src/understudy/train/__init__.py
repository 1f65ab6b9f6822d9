"""Training with the original as teacher: recipes, losses, decay, the loop, and runs that resume."""

from .divergence import DivergedError
from .loop import evaluate, train
from .recipe import (
    Recipe,
    indifferent_settings,
    load_recipe,
    recipe_names,
    recipe_settings,
    settings_by_source,
)
from .run import Run, RunError
from .teacher import teacher_identity

__all__ = [
    "DivergedError",
    "Recipe",
    "Run",
    "RunError",
    "evaluate",
    "indifferent_settings",
    "load_recipe",
    "recipe_names",
    "recipe_settings",
    "settings_by_source",
    "teacher_identity",
    "train",
]
