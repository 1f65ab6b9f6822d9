"""Training with the original as teacher: recipes, losses, decay, the loop, and runs that resume."""

from .attention import AttentionTransfer, distillation_loss, find_taps
from .decay import weight_decay_groups
from .divergence import DivergedError
from .loop import evaluate, train
from .recipe import Recipe, load_recipe, recipe_names, recipe_settings
from .run import Run, RunError

__all__ = [
    "AttentionTransfer",
    "DivergedError",
    "Recipe",
    "Run",
    "RunError",
    "distillation_loss",
    "evaluate",
    "find_taps",
    "load_recipe",
    "recipe_names",
    "recipe_settings",
    "train",
    "weight_decay_groups",
]
