"""The student of a recipe: its dense network, its plan, and what is trained."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from understudy.counting.trace import trace
from understudy.data import DataSet
from understudy.networks.models import create_model
from understudy.networks.nets.auxiliary import AuxiliaryHead, remove_auxiliary_
from understudy.networks.nets.drop_path import DropPath
from understudy.planning.plan import Plan
from understudy.planning.planner import plan as make_plan
from understudy.planning.sites import sites
from understudy.students.substitute import substitute

from .recipe import Recipe


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
    except TypeError as error:  # of whoever makes it: it knows no such option
        lacking = "has no auxiliary head: leave auxiliary at 0" if "auxiliary" in options else str(error)
        raise ValueError(f"{recipe.network} {lacking}") from error
    finally:
        torch.random.set_rng_state(generator)


def make_student_plan(recipe: Recipe, classes: int, example: Tensor) -> Plan | None:
    """The plan of a recipe; None when it trains the dense network. The auxiliary head has no part in it."""
    if recipe.plan:
        return Plan.load(recipe.plan)
    if not recipe.request.transform:
        return None
    request = recipe.request
    network = dense_network(recipe, classes, training=False)
    # From its sites a plan is the same on every machine: a budget of time is not measured on this one.
    found = sites(network, example, include=request.include or None, exclude=request.exclude or None)
    return make_plan(found, request=request)


def make_student(recipe: Recipe, classes: int, plan: Plan | None, teacher: nn.Module | None) -> nn.Module:
    """The network to train: dense, or substituted with fresh weights, its own or the teacher's, projected."""
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
    return substitute(network, plan, init="fresh" if recipe.init == "fresh" else "project")


def check_outputs(network: nn.Module, data: DataSet) -> None:
    """Raise a ValueError unless the network tells as many classes apart as the data have."""
    for shape in trace(network, data.example).outputs[""]:
        data.check_classes(shape[-1])


def without_auxiliary(network: nn.Module) -> nn.Module:
    """The network as it is used: a copy without the head that only training needs, where there is one."""
    if not any(isinstance(module, AuxiliaryHead) for module in network.modules()):
        return network
    used = copy.deepcopy(network)
    remove_auxiliary_(used)
    return used


def set_drop_path_(network: nn.Module, probability: float) -> None:
    """Ramp drop-path where the network has it."""
    for module in network.modules():
        if isinstance(module, DropPath):
            module.probability = probability
