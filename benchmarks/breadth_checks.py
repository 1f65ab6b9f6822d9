"""What every network of others must stand: a plan that is true, and a student that is whole."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

import understudy as us

OTHERS = ("shuffle", "tensor_train", "hashed", "btt", "tucker", "acdc", "block_circulant", "kronecker")
RATIO = 0.5
_SHALLOW = 0.05  # of the parameters, for ACDC: they are its depth, and half are hundreds of cosine transforms
_LARGE = 30_000_000  # parameters, from which on nothing is fitted: a fit says nothing of breadth
_EXACT, _NEAR = 1e-9, 2e-3  # of the largest output, in double and in single precision
_TRIES = 3  # of roundings, before what differs is called wrong


class WrongError(AssertionError):
    """A number or an output that is not what was promised."""


def checked(model: nn.Module, example: Any, other: str) -> dict[str, Any]:
    """Every promise for low rank and for one other transform; raises at the first that is broken."""
    size = sum(parameter.numel() for parameter in model.parameters())
    told: dict[str, Any] = {"params": size}
    for transform in ("low_rank", other):
        plan = _plan(model, transform, example)
        told[transform] = {
            "share": round(plan.params / plan.dense_params, 4),
            "layers": sum(layer.spec is not None for layer in plan.layers),
        }
        init: Any = "project" if transform == "low_rank" and size < _LARGE else "fresh"
        student = us.substitute(model, plan, init=init)
        cost = us.cost(student, example)
        told[transform] |= _as_planned(model, student, plan, cost, example)
        told[transform] |= _merges(student, example, in_double=size < _LARGE)
        _is_saved_whole(model, student, cost, example)
    return told


def _plan(model: nn.Module, transform: str, example: Any) -> us.Plan:
    """At half of the parameters, ACDC at a twentieth, or at the fewest that the transform reaches.

    ACDC of a large network is asked for the fewest at once.
    """
    ratio = RATIO
    if transform == "acdc":
        ratio = _SHALLOW if sum(parameter.numel() for parameter in model.parameters()) < _LARGE else 1e-9
    try:
        return us.plan(model, transform, ratio=ratio, example=example)
    except us.BudgetError as error:
        return us.plan(model, transform, params=error.lowest, example=example)


def _as_planned(
    model: nn.Module, student: nn.Module, plan: us.Plan, found: us.Cost, example: Any
) -> dict[str, Any]:
    """What the plan says, the student costs."""
    if found.params != plan.params:
        raise WrongError(f"{plan.params:,} parameters planned, {found.params:,} counted")
    if found.mult_adds == plan.mult_adds:
        return {}
    # A network that decides by values what it does, as a detector, does other things with other weights.
    merged = us.merge(student)
    if us.cost(merged, example).mult_adds == us.cost(model, example).mult_adds:
        raise WrongError(f"{plan.mult_adds:,} mult-adds planned, {found.mult_adds:,} counted")
    again = us.plan(merged, request=plan.request, example=example)
    if found.mult_adds == again.mult_adds:
        return {"values_decide": True}
    if all(us.cost(_rounded(student, seed), example).mult_adds == found.mult_adds for seed in range(_TRIES)):
        raise WrongError(f"{again.mult_adds:,} mult-adds planned on its outputs, {found.mult_adds:,} counted")
    return {"values_decide": True, "rounding_decides": True}


def _merges(student: nn.Module, example: Any, *, in_double: bool) -> dict[str, Any]:
    """Merged, it gives the same outputs; in double precision where it runs in that.

    A detector takes the largest of many numbers: where another rounding of its own weights gives it other
    outputs, so may a merge.
    """
    twin, given, tolerance = student, _plain(example), _NEAR
    if in_double:
        try:
            doubled = copy.deepcopy(student).double()
            precise = tree_map_only(Tensor, _doubled, given)
            wanted = outputs(doubled, precise)
            twin, given, tolerance = doubled, precise, _EXACT
        except (RuntimeError, ValueError, TypeError):  # it makes tensors of single precision
            wanted = outputs(twin, given)
    else:
        wanted = outputs(twin, given)
    merged = us.merge(twin)
    if any(isinstance(module, us.Layer) for module in merged.modules()):
        raise WrongError("a merged student holds stand-ins")
    try:
        _compare(wanted, outputs(merged, given), tolerance, "merged")
    except WrongError:
        if _is_steady(twin, given, wanted, tolerance):
            raise
        return {"rounding_decides": True}
    return {}


@torch.no_grad()
def _is_steady(model: nn.Module, given: Any, wanted: list[Tensor], tolerance: float) -> bool:
    """Whether the outputs are the same with weights that are off by some of their last digits."""
    try:
        _compare(wanted, outputs(_rounded(model), given), tolerance, "rounded otherwise")
    except WrongError:
        return False
    return True


@torch.no_grad()
def _rounded(model: nn.Module, seed: int = 0) -> nn.Module:
    """A copy whose weights are off by some of their last digits, up or down."""
    copied, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for parameter in copied.parameters():
        if parameter.is_floating_point():
            up = torch.randint(0, 2, parameter.shape, generator=generator).to(parameter)
            parameter.mul_(1 + 4 * torch.finfo(parameter.dtype).eps * (2 * up - 1))
    return copied


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _is_saved_whole(model: nn.Module, student: nn.Module, cost: us.Cost, example: Any) -> None:
    """The file has the size that was told, and what is loaded gives the same outputs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "student.safetensors")
        us.save(student, path)
        told, size = cost.bytes, path.stat().st_size
        if told != size:
            raise WrongError(f"{told:,} bytes told, {size:,} written")
        loaded = us.load(path, model).eval()
    given = _plain(example)
    _compare(outputs(student.eval(), given), outputs(loaded, given), 0, "loaded")


def _compare(wanted: list[Tensor], got: list[Tensor], tolerance: float, what: str) -> None:
    if len(wanted) != len(got):
        raise WrongError(f"{what}: {len(got)} outputs instead of {len(wanted)}")
    for first, second in zip(wanted, got, strict=True):
        if first.shape != second.shape:
            raise WrongError(f"{what}: an output of {tuple(second.shape)} instead of {tuple(first.shape)}")
        both = torch.nan_to_num(first.double()), torch.nan_to_num(second.double())
        largest = float(both[0].abs().max()) if first.numel() else 0.0
        apart = float((both[0] - both[1]).abs().max()) if first.numel() else 0.0
        if apart > tolerance * max(largest, 1e-30):
            raise WrongError(f"{what}: outputs differ by {apart:.2g} of {largest:.2g}")


def _plain(example: Any) -> Any:
    return dict(example) if isinstance(example, Mapping) else example


@torch.no_grad()
def outputs(model: nn.Module, example: Any) -> list[Tensor]:
    """All tensors of numbers that a network gives; what it draws is drawn alike each time."""
    torch.manual_seed(2)
    if isinstance(example, Mapping):
        given = model(**example)
    else:
        given = model(example) if isinstance(example, Tensor) else model(*copy.deepcopy(example))
    leaves = tree_leaves(dict(given) if isinstance(given, Mapping) else given)
    found = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not found:
        raise WrongError(f"the network gave a {type(given).__name__} without a tensor")
    return found
