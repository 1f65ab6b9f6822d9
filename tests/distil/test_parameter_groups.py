"""Rates by fan, Frobenius decay, spectral initialisation, self-guidance: each is what its formula says."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from understudy.layers import Layer
from understudy.train import Job, Recipe, fit
from understudy.train.student import dense_network, make_student
from understudy.transforms import known_transforms


def student(transform: str, scale: float = 0.3) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3))
    plan = us.plan(model, transform, scale=scale, include=["0"])
    made = us.substitute(model, plan, init="fresh")
    assert isinstance(made, nn.Sequential)
    return made


def transform_of(model: nn.Sequential) -> us.Transform:
    layer = model[0]
    assert isinstance(layer, Layer)
    return layer.transform


@pytest.mark.parametrize("name", us.list_transforms())
def test_every_parameter_has_a_fan_and_the_groups_partition_the_parameters(name: str) -> None:
    kind = known_transforms()[name]
    knob = kind.knob_at(24, 24, 0.3)
    fans = kind.fans(24, 24, knob)
    assert fans.keys() == kind.shapes(24, 24, knob).keys()
    model = student(name)
    groups = us.parameter_groups(model, 0.1, rates="fan", learning_rate=0.01)
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert rates.keys() == {id(parameter) for parameter in model.parameters()}
    assert sum(len(group["params"]) for group in groups) == len(rates)
    for parameter_name, parameter in transform_of(model).named_parameters():
        assert rates[id(parameter)] == pytest.approx(0.01 * 24 / (fans[parameter_name] * len(fans)))
    assert rates[id(model[2].weight)] == 0.01
    decays = [group["weight_decay"] for group in us.parameter_groups(model, 0.1)]
    assert {group["weight_decay"] for group in groups} == set(decays)


@pytest.mark.parametrize("name", us.list_transforms())
def test_by_size_the_factors_of_a_stand_in_learn_in_proportion_and_all_else_alike(name: str) -> None:
    model = student(name)
    factors = list(transform_of(model).parameters())
    with torch.no_grad():
        factors[-1].mul_(7)
    sizes = torch.stack([factor.detach().square().mean().sqrt() for factor in factors])
    groups = us.parameter_groups(model, 0.1, rates="size", learning_rate=0.01)
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    assert rates.keys() == {id(parameter) for parameter in model.parameters()}
    wanted = [0.01 * float(size / sizes.mean()) if size else 0.01 for size in sizes]
    assert [rates[id(factor)] for factor in factors] == pytest.approx(wanted)
    assert {rates[id(one)] for one in (model[0].bias, model[2].weight, model[2].bias)} == {0.01}


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_what_has_no_size_learns_at_the_rate_itself(value: float) -> None:
    model = student("low_rank")
    factor = next(transform_of(model).parameters())
    nn.init.constant_(factor, value)
    groups = us.parameter_groups(model, rates="size", learning_rate=0.01)
    assert next(group["lr"] for group in groups if any(factor is one for one in group["params"])) == 0.01
    assert us.parameter_groups(nn.BatchNorm1d(3), rates="size", learning_rate=0.01)[0]["lr"] == 0.01


@pytest.mark.parametrize(
    "name", ["low_rank", "tensor_train", "tucker", "kronecker", "btt", "blast", "shuffle"]
)
def test_the_fans_of_the_factors_account_for_the_variance_of_the_map(name: str) -> None:
    """Factors drawn with a variance of one over their fan-in keep the variance of what passes through."""
    kind = known_transforms()[name]
    knob = kind.knob_at(64, 64, 0.4)
    fans = kind.fans(64, 64, knob)
    squares = []
    for seed in range(20):
        made = kind(64, 64, knob, seed=seed, dtype=torch.float64)
        with torch.no_grad():
            for parameter_name, parameter in made.named_parameters():
                generator = torch.Generator().manual_seed(seed)
                generator.manual_seed(seed * 100 + len(parameter_name) + parameter.numel())
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
                parameter.mul_(fans[parameter_name] ** -0.5)
        squares.append(float(made.matrix().detach().square().sum()) / 64)
    assert 0.7 < math.fsum(squares) / len(squares) < 1.4


def test_frobenius_decay_is_the_decay_of_the_dense_matrix() -> None:
    model = student("btt").double()
    transform = transform_of(model)
    us.frobenius_decay(model, 0.3).backward()
    matrix = transform.matrix()
    expected = torch.autograd.grad((matrix * 0.3 * matrix.detach()).sum(), list(transform.parameters()))
    for parameter, gradient in zip(transform.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-7)
    groups = us.parameter_groups(model, 0.3, policy="frobenius")
    decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert {decay[id(parameter)] for parameter in transform.parameters()} == {0.0}
    assert decay[id(model[2].weight)] == 0.3
    assert float(us.frobenius_decay(model, 0.3, overrides={"btt": "crs"})) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": "fast"}, "rates 'fast' is not one of same, fan, size"),
        ({"rates": "fan"}, "rates 'fan' needs a learning_rate above 0, not None"),
        ({"rates": "size", "learning_rate": 0.0}, "rates 'size' needs a learning_rate above 0, not 0.0"),
        ({"policy": "csr"}, "is not one of crs, none, frobenius"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        us.parameter_groups(student("low_rank"), 0.1, **options)


def batches() -> list[tuple[Tensor, Tensor]]:
    x = torch.randn(64, 24, generator=torch.Generator().manual_seed(0))
    return list(zip(x.split(16), x[:, :3].argmax(1).split(16), strict=True))


def test_a_recipe_trains_with_frobenius_decay_and_rates_by_fan() -> None:
    settings = Recipe(epochs=2, optimiser="adamw", learning_rate=3e-3, decay="frobenius", rates="fan")
    losses = []
    for weight_decay in (0.0, 0.1):
        model = student("btt")
        job = Job(model, batches(), settings=settings.replaced({"weight_decay": weight_decay}))
        losses.append(fit(job).epochs[0].train_loss)
    assert losses[1] > losses[0]  # the decay is part of what is lowered
    for rates in ("fan", "size"):
        with pytest.raises(ValueError, match=f"rates '{rates}' is for the optimiser adamw, not sgd"):
            Recipe().replaced({"rates": rates})


def test_spectral_initialisation_projects_the_fresh_dense_network() -> None:
    recipe = Recipe(network="wrn_10_1", init="spectral").replaced({"transform": "low_rank", "ratio": 0.5})
    dense = dense_network(recipe, 10, training=True)
    plan = us.plan(dense, "low_rank", ratio=0.5)
    made, wanted = make_student(recipe, 10, plan, None), us.substitute(dense, plan, init="project")
    for (key, value), expected in zip(made.state_dict().items(), wanted.state_dict().values(), strict=True):
        assert torch.equal(value, expected), key


def test_a_companion_changes_nothing_at_first_and_fades_to_nothing() -> None:
    model, x = student("btt").double(), torch.randn(5, 24, dtype=torch.float64)
    alone = model(x)
    guidance = us.SelfGuidance(model)
    torch.testing.assert_close(model(x), alone)  # it begins at the matrix of the stand-in
    with torch.no_grad():
        guidance.weights[0].add_(1)
    assert not torch.allclose(model(x), alone)
    model[0].eval()
    torch.testing.assert_close(model(x), alone)  # only training is guided
    model.train()
    torch.autograd.backward(model(x).sum())
    gradient = transform_of(model).get_parameter("first").grad
    assert gradient is not None
    assert not gradient.any()  # a share of 1 leaves all to the companion
    guidance.share = 0.0
    torch.testing.assert_close(model(x), alone)
    guidance.close()
    assert not model[0]._forward_hooks


def guided(folder: Path, epochs: int) -> Tensor:
    settings = Recipe(epochs=4, learning_rate=0.1, guide=0.6, checkpoint_seconds=0.0)
    torch.manual_seed(0)
    job = Job(student("low_rank"), batches(), settings=settings)

    class StoppedError(Exception):
        pass

    def stop(line: str) -> None:
        if line.startswith(f"epoch {epochs}/"):
            raise StoppedError

    with contextlib.suppress(StoppedError):
        fit(job, folder, report=stop)
    assert not job.model.get_submodule("0")._forward_hooks
    out: Tensor = job.model(batches()[0][0]).detach()
    return out


def test_a_guided_run_resumes_with_the_same_bits(tmp_path: Path) -> None:
    whole = guided(tmp_path / "whole", 99)
    guided(tmp_path / "parts", 2)
    assert torch.equal(guided(tmp_path / "parts", 99), whole)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"guide": 1.5}, "guide is 1.5, not in 0..1"),
        ({"guide": 0.5, "ema": 0.9}, "guide does not go with ema"),
    ],
)
def test_a_recipe_names_what_does_not_go_with_guidance(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(**settings)


def test_guidance_needs_an_optimiser_of_its_own() -> None:
    model = student("low_rank")
    job = Job(
        model,
        batches(),
        settings=Recipe(epochs=1, guide=0.5),
        optimiser=torch.optim.SGD(model.parameters(), lr=0.1),
    )
    with pytest.raises(ValueError, match="guide needs an optimiser that the settings name"):
        fit(job)
