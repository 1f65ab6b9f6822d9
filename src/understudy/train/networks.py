"""The teacher and the student of a recipe."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from torch import Tensor, nn

from understudy._util.files import digest
from understudy.counting.trace import trace
from understudy.data import DataSet
from understudy.networks.models import UnknownModelError, create_model
from understudy.networks.nets import Darts
from understudy.planning.plan import Plan
from understudy.planning.planner import plan as make_plan
from understudy.students.file import is_saved, load
from understudy.students.substitute import substitute
from understudy.students.weights import load_weights

from .recipe import Recipe
from .run import Run, RunError


def dense_network(recipe: Recipe, classes: int, *, training: bool) -> nn.Module:
    """The recipe's network with the data's classes, and its auxiliary head when it is trained with one."""
    source = recipe.network.partition(":")[0] if ":" in recipe.network else ""
    key = {"": "classes", "timm": "num_classes", "torchvision": "num_classes"}.get(source)
    options: dict[str, object] = {key: classes} if key else {}
    if training and recipe.auxiliary:
        options["auxiliary"] = True
    generator = torch.random.get_rng_state()
    torch.manual_seed(recipe.seed)
    try:
        return create_model(recipe.network, **options)
    finally:
        torch.random.set_rng_state(generator)


def make_student_plan(recipe: Recipe, classes: int, example: Tensor) -> Plan | None:
    """The plan of a recipe; None when it trains the dense network. The auxiliary head has no part in it."""
    if recipe.plan:
        return Plan.load(recipe.plan)
    if not recipe.transform:
        return None
    return make_plan(
        dense_network(recipe, classes, training=False),
        recipe.transform,
        **recipe.budget(),
        example=example,
        exclude=list(recipe.exclude) or None,
        spatial=recipe.spatial,
        seed=recipe.seed,
    )


def make_student(recipe: Recipe, classes: int, plan: Plan | None, teacher: nn.Module | None) -> nn.Module:
    """The network to train: dense, or substituted with fresh weights or with the teacher's, projected."""
    network = dense_network(recipe, classes, training=True)
    if plan is None:
        return network
    if recipe.init == "project":
        if teacher is None:
            raise ValueError("init 'project' needs a teacher whose weights are projected")
        try:
            network.load_state_dict(teacher.state_dict(), strict=not recipe.auxiliary)
        except RuntimeError as error:
            raise ValueError(f"the teacher's weights do not fit {recipe.network}: {error}") from error
    return substitute(network, plan, init=recipe.init)


def load_teacher(recipe: Recipe, classes: int) -> nn.Module | None:
    """The trained network that a recipe names: a run folder, a file of weights, or a third party's name."""
    if not recipe.teacher:
        return None
    path = Path(recipe.teacher)
    if path.exists():
        teacher = load_trained(path, recipe, classes)
    elif ":" in recipe.teacher:
        teacher = _pretrained(recipe.teacher)
    else:
        raise RunError(
            f"no teacher {recipe.teacher!r}: neither a run folder, nor a file of weights, nor timm:NAME"
        )
    return teacher.eval().requires_grad_(False)


def _pretrained(name: str) -> nn.Module:
    source = name.partition(":")[0]
    try:
        return create_model(
            name, **{"weights": "DEFAULT"} if source == "torchvision" else {"pretrained": True}
        )
    except (UnknownModelError, ImportError):
        raise
    except Exception as error:  # whatever a library raises without a network
        raise RunError(f"the weights of {name} cannot be had: {error}") from error


def check_outputs(network: nn.Module, data: DataSet) -> None:
    """Raise a ValueError unless the network tells as many classes apart as the data have."""
    for shape in trace(network, data.example).outputs[""]:
        data.check_classes(shape[-1])


def load_trained(path: Path, recipe: Recipe, classes: int) -> nn.Module:
    """The network of a finished run, or of a file of weights for the recipe's network."""
    if path.is_dir():
        run = Run.read(path)
        if run.status != "finished":
            raise RunError(f"{path} is {run.status}, not finished")
        recipe, path = run.recipe, path / "model.safetensors"
    network = dense_network(recipe, classes, training=False)
    try:
        if is_saved(path):
            return load(path, network)
        load_weights(network, path)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"{path} does not fit {recipe.network} with {classes} classes: {error}") from error
    return network


def read_inputs(recipe: Recipe) -> dict[str, str]:
    """Digests of the teacher and the plan of a recipe: they may move, and the run is still the same."""
    teacher = Path(recipe.teacher)
    files = {
        "teacher": teacher / "model.safetensors" if teacher.is_dir() else teacher,
        "plan": Path(recipe.plan),
    }
    named = {"teacher": recipe.teacher, "plan": recipe.plan}
    return {key: digest(files[key]) if files[key].is_file() else named[key] for key in named if named[key]}


def without_auxiliary(network: nn.Module) -> nn.Module:
    """The network as it is used: a copy without the head that only training needs, where there is one."""
    if not any(isinstance(module, Darts) and module.auxiliary for module in network.modules()):
        return network
    used = copy.deepcopy(network)
    for module in used.modules():
        if isinstance(module, Darts):
            module.auxiliary = None
    return used


def set_drop_path(network: nn.Module, probability: float) -> None:
    """Ramp drop-path where the network has it."""
    for module in network.modules():
        if isinstance(module, Darts):
            module.drop_path_probability = probability
