"""The teacher of a run: what it is, and the trained network that it names."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

from torch import nn

from understudy._util.factories import check_trust
from understudy._util.files import digest
from understudy.networks.trained import published_model
from understudy.students.file import is_saved, load
from understudy.students.weights import load_weights

from .config import Inputs, RunError
from .recipe import Recipe
from .run import Run
from .student import dense_network


def teacher_identity(source: str | Path) -> str:
    """What a teacher is, wherever it lies; a RunError where there is none.

    A run counts by its identity, which follows from its settings and is known before it has finished; a file
    of weights by its content; a published network by its name.

    >>> from understudy.train import RunError, teacher_identity
    >>> teacher_identity("timm:resnet18")
    'timm:resnet18'
    >>> teacher_identity("runs/teacher")
    Traceback (most recent call last):
    ...
    understudy.train.config.RunError: no teacher 'runs/teacher': neither a run folder, nor a file...
    """
    path = Path(source)
    if path.is_dir():
        return Run.read(path).identity
    if path.is_file():
        return digest(path)
    if ":" in str(source):
        return str(source)
    raise RunError(f"no teacher {str(source)!r}: neither a run folder, nor a file of weights, nor timm:NAME")


def read_inputs(recipe: Recipe) -> Inputs:
    """What the teacher and the plan of a recipe are: they may move, and the run is still the same."""
    plan = Path(recipe.plan)
    if recipe.plan and not plan.is_file():
        raise RunError(f"no plan {recipe.plan!r}")
    return Inputs(
        teacher=teacher_identity(recipe.teacher) if recipe.teacher else "",
        plan=digest(plan) if recipe.plan else "",
    )


def load_teacher(recipe: Recipe, classes: int, *, trust: bool = False) -> nn.Module | None:
    """The trained network that a recipe names: a run folder, a file of weights, or a third party's name.

    Without `trust`, no function that a run's folder names is called, unless the recipe names it as well.
    """
    if not recipe.teacher:
        return None
    path = Path(recipe.teacher)
    if path.exists():
        taught_by = dataclasses.replace(recipe, network=recipe.teacher_network or recipe.network)
        named = {recipe.network, taught_by.network}
        teacher = load_trained(path, taught_by, classes, trust=trust, named=named)
    else:
        teacher = published_model(recipe.teacher)
    return teacher.eval().requires_grad_(False)


def load_trained(
    path: Path, recipe: Recipe, classes: int, *, trust: bool = False, named: Collection[str] = ()
) -> nn.Module:
    """The network of a finished run, or of a file of weights for the recipe's network.

    A run that names a function of others as its network needs `trust`, unless the name is one of `named`.
    """
    if path.is_dir():
        run = Run.read(path)
        if run.status != "finished":
            raise RunError(f"{path} is {run.status}, not finished")
        check_trust(path, {"network": run.recipe.network}, trust=trust, named=named)
        recipe, path = run.recipe, run.model_file
    network = dense_network(recipe, classes, training=False)
    try:
        if is_saved(path):
            return load(path, network)
        load_weights(network, path)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"{path} does not fit {recipe.network} with {classes} classes: {error}") from error
    return network
