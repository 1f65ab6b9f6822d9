"""CRS weight decay: the groups partition the parameters, and the type of a module decides, not its name."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
import torch
from torch import nn

import understudy as us
from representatives import NAMES
from understudy.distil.decay import Policy, Scope, weight_decay_groups
from understudy.layers import Layer
from understudy.planning.request import Spatial

SPATIAL: tuple[Spatial, ...] = ("separable", "unfolded")
DECAY = 5e-4


class Small(nn.Module):
    """Two convolutions of different compressibility, a norm and a head; the names mislead on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.dense = nn.Conv2d(16, 24, 3, padding=1, bias=False)  # is replaced
        self.norm = nn.BatchNorm2d(24)
        self.bias = nn.Conv2d(24, 48, 1)  # is replaced
        self.transform = nn.Conv2d(48, 24, 1)  # stays dense
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bias(self.norm(self.dense(self.stem(x))))
        y: torch.Tensor = self.head(self.transform(x).mean(dim=(2, 3)))
        return y


def substituted(transform: str, spatial: Spatial = "separable") -> nn.Module:
    plan = us.plan(
        Small(),
        transform,
        scale=0.0 if transform != "dense" else 1.0,
        spatial=spatial,
        example=torch.zeros(1, 3, 8, 8),
        include=["dense", "bias"],
    )
    return us.substitute(Small(), plan, init="fresh")


def decay_of(groups: list[dict[str, Any]]) -> dict[int, float]:
    """Parameter identity → decay; a parameter that is in two groups fails."""
    amounts: dict[int, float] = {}
    for group in groups:
        for parameter in group["params"]:
            assert id(parameter) not in amounts
            amounts[id(parameter)] = group["weight_decay"]
    return amounts


def structured(model: nn.Module, path: str) -> tuple[list[nn.Parameter], int]:
    """The parameters of the structured matrix at a path, and the entries that they stand for."""
    layer = model.get_submodule(path)
    assert isinstance(layer, Layer)
    transform = layer.transform
    return list(transform.parameters()), transform.in_features * transform.out_features


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_the_groups_partition_the_parameters_exactly(transform: str, spatial: Spatial) -> None:
    model = substituted(transform, spatial)
    for policy, scope, vectors in itertools.product(get_args(Policy), get_args(Scope), (True, False)):
        groups = weight_decay_groups(model, DECAY, policy=policy, scope=scope, decay_vectors=vectors)
        assert set(decay_of(groups)) == {id(parameter) for parameter in model.parameters()}
        assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
        torch.optim.SGD(groups, lr=0.1)


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_every_structured_matrix_decays_by_its_own_ratio(transform: str, spatial: Spatial) -> None:
    model = substituted(transform, spatial)
    amounts = decay_of(weight_decay_groups(model, DECAY))
    for path in ("dense", "bias"):
        parameters, entries = structured(model, path)
        held = sum(parameter.numel() for parameter in parameters)
        assert [*{amounts.pop(id(parameter)) for parameter in parameters}] == [
            pytest.approx(DECAY * held / entries)
        ]
    assert set(amounts.values()) == {DECAY}


@pytest.mark.parametrize("transform", NAMES)
def test_the_network_scope_gives_all_structured_matrices_one_ratio(transform: str) -> None:
    model = substituted(transform)
    amounts = decay_of(weight_decay_groups(model, DECAY, scope="network"))
    first, second = structured(model, "dense"), structured(model, "bias")
    parameters = first[0] + second[0]
    ratio = sum(parameter.numel() for parameter in parameters) / (first[1] + second[1])
    assert [*{amounts.pop(id(parameter)) for parameter in parameters}] == [pytest.approx(DECAY * ratio)]
    assert set(amounts.values()) == {DECAY}


def test_the_ratio_of_low_rank_is_that_of_a_hand_computation() -> None:
    model = substituted("low_rank")
    layer = model.get_submodule("bias")
    assert isinstance(layer, Layer)
    rank = layer.transform.knob
    amounts = decay_of(weight_decay_groups(model, DECAY))
    for parameter in layer.transform.parameters():
        assert amounts[id(parameter)] == pytest.approx(DECAY * rank * (24 + 48) / (24 * 48))


def test_nothing_compressed_decays_as_usual() -> None:
    for model in (substituted("dense"), Small()):
        assert [group["weight_decay"] for group in weight_decay_groups(model, DECAY)] == [DECAY]


@pytest.mark.parametrize("transform", NAMES)
def test_policy_none_leaves_all_decay_as_it_is(transform: str) -> None:
    groups = weight_decay_groups(substituted(transform), DECAY, policy="none")
    assert [group["weight_decay"] for group in groups] == [DECAY]


def test_an_override_changes_the_policy_of_its_transform_only() -> None:
    hashed, shuffled = substituted("hashed"), substituted("low_rank")
    both = nn.ModuleDict({"hashed": hashed, "low_rank": shuffled})
    amounts = decay_of(weight_decay_groups(both, DECAY, overrides={"hashed": "none"}))
    assert {amounts[id(parameter)] for parameter in hashed.parameters()} == {DECAY}
    parameters, _ = structured(shuffled, "bias")
    assert all(amounts[id(parameter)] < DECAY for parameter in parameters)
    amounts = decay_of(weight_decay_groups(both, DECAY, policy="none", overrides={"hashed": "crs"}))
    assert {amounts[id(parameter)] for parameter in shuffled.parameters()} == {DECAY}
    parameters, _ = structured(hashed, "bias")
    assert all(amounts[id(parameter)] < DECAY for parameter in parameters)


@pytest.mark.parametrize("transform", NAMES)
def test_without_decay_of_vectors_biases_and_norms_are_free_but_structured_vectors_are_not(
    transform: str,
) -> None:
    model = substituted(transform)
    amounts = decay_of(weight_decay_groups(model, DECAY, decay_vectors=False))
    for path in ("stem.bias", "norm.weight", "norm.bias", "head.bias", "transform.bias", "bias.bias"):
        assert amounts[id(model.get_parameter(path))] == 0
    for path in ("dense", "bias"):
        assert all(amounts[id(parameter)] > 0 for parameter in structured(model, path)[0])
    for path in ("stem.weight", "head.weight", "transform.weight"):
        assert amounts[id(model.get_parameter(path))] == DECAY


def test_the_type_of_a_module_decides_and_not_its_name() -> None:
    model = substituted("low_rank")
    amounts = decay_of(weight_decay_groups(model, DECAY))
    assert amounts[id(model.get_parameter("transform.weight"))] == DECAY
    assert all(amounts[id(parameter)] < DECAY for parameter in structured(model, "bias")[0])


def test_a_shared_structured_layer_is_counted_once() -> None:
    layer = substituted("low_rank").get_submodule("bias")
    alone = decay_of(weight_decay_groups(nn.Sequential(layer), DECAY, scope="network"))
    twice = decay_of(weight_decay_groups(nn.Sequential(layer, layer), DECAY, scope="network"))
    assert alone == twice


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "csr"}, "policy 'csr' is not one of crs, none, frobenius"),
        ({"scope": "model"}, "scope 'model' is not one of layer, network"),
        ({"overrides": {"hash": "none"}}, "no transform 'hash'"),
        ({"overrides": {"hashed": "off"}}, "policy of hashed 'off' is not one of crs, none, frobenius"),
    ],
)
def test_a_wrong_policy_scope_or_transform_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weight_decay_groups(Small(), DECAY, **options)
