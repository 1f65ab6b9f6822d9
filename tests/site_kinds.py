"""The whole way of a network: what every kind of site goes through, from sites to a compressed student."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import understudy as us
from snapshots import snapshot
from understudy.layers import Layer

Run = Callable[[nn.Module], Tensor]


def assert_equal_outputs(one: nn.Module, other: nn.Module, run: Run) -> None:
    with torch.no_grad():
        torch.testing.assert_close(run(one), run(other), rtol=1e-9, atol=1e-10)


def take_the_whole_way(
    model: nn.Module, example: Any, run: Run, folder: Path, include: Sequence[str], transform: str, **how: Any
) -> nn.Module:
    """Plan, substitute (both ways), count, merge, save and load; the model is in float64 and not changed."""
    before = snapshot(model)
    plan = us.plan(model, transform, ratio=0.8, example=example, include=include, **how)
    replaced = [layer.path for layer in plan if layer.spec is not None]
    assert replaced
    student = us.substitute(model, plan)
    assert all(isinstance(student.get_submodule(path), Layer) for path in replaced)
    counted = us.cost(student, example)
    assert (plan.params, plan.mult_adds, plan.ideal_mult_adds) == (
        counted.params,
        counted.mult_adds,
        counted.ideal_mult_adds,
    )
    assert plan.params == sum(parameter.numel() for parameter in student.parameters())
    assert us.cost(model, example).mult_adds == plan.dense_mult_adds
    merged = us.merge(student)
    assert [type(module) for module in merged.modules()] == [type(module) for module in model.modules()]
    shapes = {key: tensor.shape for key, tensor in model.state_dict().items()}
    assert {key: tensor.shape for key, tensor in merged.state_dict().items()} == shapes
    assert_equal_outputs(student, merged, run)
    us.save(student, folder / "student.safetensors")
    assert (folder / "student.safetensors").stat().st_size == counted.bytes
    assert_equal_outputs(student, us.load(folder / "student.safetensors", model), run)
    assert_equal_outputs(student, us.substitute_(copy.deepcopy(model), plan), run)
    assert us.Plan.from_json(plan.to_json()) == plan
    assert snapshot(model) == before
    return student


def assert_dense_stand_ins_change_nothing(model: nn.Module, run: Run, include: Sequence[str]) -> nn.Module:
    """A stand-in that holds the whole matrix gives the outputs of the original."""
    plan = us.plan(model, "dense", knob=1, include=include, spatial="unfolded")
    student = us.substitute(model, plan)
    assert_equal_outputs(student, model, run)
    return student
