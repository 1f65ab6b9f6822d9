"""Training with the original as teacher: recipes, losses, decay, the loop, and runs that resume."""

from .divergence import DivergedError
from .loop import evaluate, train
from .recipe import Recipe, load_recipe, recipe_names, recipe_settings
from .run import Run, RunError

__all__ = [
    "DivergedError",
    "Recipe",
    "Run",
    "RunError",
    "evaluate",
    "load_recipe",
    "recipe_names",
    "recipe_settings",
    "train",
]
