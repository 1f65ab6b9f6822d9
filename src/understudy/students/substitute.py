"""model + Plan → model with stand-ins; and back to plain layers."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy._util.guard import the_network
from understudy._util.modules import adopt, become_, copied
from understudy._util.nearest import hint
from understudy._util.records import InputError
from understudy.layers.dense import the_dense_map
from understudy.layers.grouped import GroupedConv
from understudy.layers.inside import InsideConv
from understudy.layers.layer import Layer, is_student, stand_ins
from understudy.layers.opening import close_, open_, opened
from understudy.layers.replacement import Replacement
from understudy.layers.separable import SeparableConv
from understudy.planning.obstacles import obstacle, weight_owners
from understudy.planning.plan import Plan
from understudy.transforms import known_transforms
from understudy.transforms.inside import Inside

from .pretrained import guard_
from .progress import shown
from .wrappers import unwrapped


class MisfitError(InputError):
    """A plan, or a file, that is of another network."""


Init = Literal["project", "fresh", "none"]
_NESTED, _OFF = "use_nested_tensor", ""  # false, and not False: it was true, and will be with plain layers


def substitute(model: nn.Module, plan: Plan, *, init: Init = "project") -> nn.Module:
    """A copy of `model` with the plan's stand-ins; `model` is untouched.

    `init="project"` fits each stand-in to the weights it replaces, which is what a trained network needs;
    `init="fresh"` draws new weights with the same variance, to train from scratch.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5))
    >>> type(student.stage1[0].conv1).__name__
    'Conv'
    """
    layers = _layers_of(plan)
    model = opened(the_network(model, copied=True), _replaced(layers))
    made = build_layers(model, layers, init)
    student = exchange(model, {id(model.get_submodule(path)): layer for path, layer in made.items()})
    return settle_(student)


def substitute_(model: nn.Module, plan: Plan, *, init: Init = "project") -> nn.Module:
    """The same in place, all or nothing; returns `model`.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> us.substitute_(model, us.plan(model, "shuffle", scale=0.5), init="fresh") is model
    True
    """
    layers = _layers_of(plan)
    made = build_layers(opened(the_network(model, copied=True), _replaced(layers)), layers, init)
    open_(model, made)
    for path, layer in made.items():
        become_(model.get_submodule(path), layer)
    return settle_(model)


@torch.no_grad()
def merge(model: nn.Module) -> nn.Module:
    """A copy of `model` with plain linear layers and convolutions for the stand-ins: same outputs.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5))
    >>> type(us.merge(student).stage1[0].conv1).__name__
    'Conv2d'
    """
    model = unwrapped(the_network(model, copied=True))
    made: dict[int, nn.Module] = {}
    for _, layer in stand_ins(model):
        plain = layer.merged()
        trained = [parameter for transform in layer.transforms for parameter in transform.parameters()]
        plain.get_parameter("weight").requires_grad_(any(parameter.requires_grad for parameter in trained))
        made[id(layer)] = adopt(layer, plain)
    return settle_(close_(exchange(model, made)))


@torch.no_grad()
def _replaced(layers: Iterable[Replacement]) -> list[str]:
    return [layer.path for layer in layers if layer.spec is not None]


def _layers_of(plan: object) -> Sequence[Replacement]:
    if isinstance(plan, Plan):
        return plan.layers
    if isinstance(plan, str) and plan in known_transforms():
        way = f'the name of a transform: make a plan first, us.plan(model, "{plan}", ratio=0.5)'
    elif isinstance(plan, str | os.PathLike):
        way = "a path: Plan.load reads a plan from a file"
    else:
        way = f'a {type(plan).__name__}: us.plan(model, "low_rank", ratio=0.5) makes a plan'
    raise TypeError(f"plan is {plan!r}, {way}" if isinstance(plan, str) else f"plan is {way}")


def build_layers(model: nn.Module, layers: Iterable[Replacement], init: Init) -> dict[str, Layer]:
    """The stand-ins of a plan by path, checked against the model, which is not changed."""
    if init not in get_args(Init):
        raise ValueError(f"init {init!r} is not one of project, fresh")
    planned = [layer for layer in layers if layer.spec is not None]
    modules = dict(model.named_modules(remove_duplicate=False))
    owners = weight_owners(model)
    problems = _first(problem for layer in planned if (problem := _mismatch(layer, modules, owners)))
    if not problems and init != "none":
        problems = _first(problem for layer in planned if (problem := _not_finite(layer, modules)))
    if problems:
        more = " (and more)" if len(problems) > 3 else ""
        raise MisfitError(f"the plan does not fit {type(model).__name__}: {'; '.join(problems[:3])}{more}")
    steps = shown(planned, "substituting")
    try:
        return {layer.path: _build(layer, modules[layer.path], init) for layer in steps}
    except ValueError as error:  # a way to run that a transform has not
        raise MisfitError(f"the plan does not fit {type(model).__name__}: {error}") from error


def _first(problems: Iterable[str]) -> list[str]:
    """A few of them: each takes time to tell, and there may be one for every layer."""
    return list(itertools.islice(problems, 4))


def _mismatch(layer: Replacement, modules: dict[str, nn.Module], owners: dict[int, list[str]]) -> str | None:
    """Why a module is not the one that was planned for, or cannot be replaced."""
    module = modules.get(layer.path)
    if module is None:
        return f"no module {layer.path!r}{hint(layer.path, modules, most=1)}"
    reason = obstacle(layer.path, module, owners)
    if reason is not None:
        return f"{layer.path!r}: {reason}"
    dense = the_dense_map(module)
    planned = (layer.out_features, layer.in_features // layer.groups, *layer.kernel)
    if (dense.kind, dense.groups, tuple(dense.weight.shape)) != (layer.kind, layer.groups, planned):
        found = f"a {dense.kind} with weight {tuple(dense.weight.shape)}{_in_groups(dense.groups)}"
        return f"{layer.path!r} is {found}, not a {layer.kind} with {planned}{_in_groups(layer.groups)}"
    return None


def _in_groups(groups: int) -> str:
    return f" in {groups} groups" if groups > 1 else ""


def _not_finite(layer: Replacement, modules: dict[str, nn.Module]) -> str | None:
    weight = modules[layer.path].get_parameter("weight").detach()  # which may be one of inference mode
    if weight.is_meta or bool(weight.isfinite().all()):
        return None
    return f"the weight of {layer.path!r} holds NaN or infinite values"


@torch.no_grad()
def _build(planned: Replacement, module: nn.Module, init: Init) -> Layer:
    layer = planned.build(module, draw=init != "none")
    weight = the_dense_map(module).weight
    if not weight.is_meta and init != "none":
        precise = weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
        _initialise_(layer, precise, init)
    adopt(module, layer)
    return layer


def _initialise_(layer: Layer, weight: Tensor, init: Init) -> None:
    """Give a layer the weights that `init` asks for, from the dense weight it replaces."""
    if isinstance(layer, GroupedConv):
        for part, rows in zip(layer.convs, weight.chunk(layer.groups), strict=True):
            _initialise_(part, rows, init)
        return
    std = float(weight.square().mean().sqrt())
    if isinstance(layer, SeparableConv | InsideConv):
        if init == "project" and isinstance(layer, InsideConv):
            fitted = Inside(layer.transform, layer.depthwise.weight.flatten(1))
            fitted.project_(weight.flatten(1))
            layer.depthwise.weight.copy_(fitted.taps.reshape(layer.depthwise.weight.shape))
        elif init == "project" and isinstance(layer, SeparableConv):
            pointwise, depthwise = separate(weight)
            layer.transform.project_(pointwise)
            layer.depthwise.weight.copy_(depthwise)
        else:  # the taps keep the variance of their input, so the rest falls to the map
            layer.transform.reset_parameters(std * math.sqrt(layer.geometry.area) or None)
    elif init == "project":
        layer.transform.project_(weight.flatten(1))
    else:
        layer.transform.reset_parameters(std or None)


def separate(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The best pointwise (out, in) and depthwise (in, 1, …) weights of a dense kernel (out, in, …).

    Each input channel has its own problem: the nearest rank-one matrix to out × taps.
    """
    per_channel = weight.flatten(2).transpose(0, 1)  # (in, out, taps)
    taps = torch.linalg.eigh(per_channel.mT @ per_channel).eigenvectors[..., -1]  # (in, taps)
    pointwise = (per_channel @ taps[..., None])[..., 0].T
    return pointwise, taps.reshape(weight.shape[1], 1, *weight.shape[2:])


def settle_(model: nn.Module) -> nn.Module:
    """Have the modules around the layers, which were exchanged, take note of what they hold now."""
    return guard_(_call_layers_(model))


def _call_layers_(model: nn.Module) -> nn.Module:
    """Have PyTorch's encoder layers call their linear layers where one is a stand-in.

    In evaluation they would hand all weights to a fused kernel instead, which would form every matrix. The
    flag is the one by which they know whether that kernel fits their activation.
    """
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            fits = {F.relu: 1, F.gelu: 2}.get(module.activation, 0)
            stands_in = is_student(module)
            module.activation_relu_or_gelu = 0 if stands_in else fits
        elif isinstance(module, nn.TransformerEncoder):  # which makes nested tensors for that kernel alone
            asked = module.use_nested_tensor is True
            if asked and is_student(module):
                vars(module)[_NESTED] = _OFF
            elif vars(module)[_NESTED] == _OFF:
                vars(module)[_NESTED] = True
    return model


def exchange(model: nn.Module, made: dict[int, nn.Module] | dict[int, Layer]) -> nn.Module:
    """A deep copy of `model` with some modules exchanged; what is exchanged is not copied first."""
    return copied(model, dict(made))
