"""What an error of a layer does in fact: errors that add up cost more than moments foretell."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from test_calibrate import images, small
from torch import Tensor, nn

import understudy as us
from snapshots import snapshot
from understudy.fitting.fit import times
from understudy.fitting.inputs import read_batches, some_of_each

TOKENS = 32
BOTH = ["averaged", "picked"]  # the last layer of a network is taken by name alone


class Pooled(nn.Module):
    """Two maps of the same tokens: the outputs of one are averaged over them, of the other's one is taken.

    The tokens of a sample are alike, so the errors of the first add up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.averaged, self.picked = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([2 * self.averaged(x).mean(1), self.picked(x)[:, 0]], dim=1)


def pooled() -> Pooled:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Pooled().eval()


def tokens() -> Tensor:
    """Each sample's tokens differ little from each other."""
    draw = torch.Generator().manual_seed(3)
    own = torch.randn(96, 1, 16, generator=draw) * torch.linspace(1, 3, 16)
    return own + 0.1 * torch.randn(96, TOKENS, 16, generator=draw)


def lost(
    model: nn.Module, path: str, rank: int, known: us.Calibration, inputs: Tensor
) -> tuple[float, float]:
    """What a layer of this rank is said to lose, and what it does lose."""
    layer = model.get_submodule(path)
    metric = (known.metrics(path) or ())[0]
    fitted = us.get_transform("low_rank")(16, 16, rank)
    weight = layer.get_parameter("weight").detach().double()
    fitted.fit_(weight, metric)
    error = fitted.matrix().detach().double() - weight
    changed = copy.deepcopy(model)
    other = changed.get_submodule(path)
    with torch.no_grad():
        other.get_parameter("weight").add_(error)
        other.get_parameter("bias").sub_(times(error, known.layers[path].mean))
        real = float((changed(inputs) - model(inputs)).square().sum()) / len(inputs)
    return known.loss(path, error) or 0.0, real


@pytest.mark.parametrize("path", ["averaged", "picked"])
@pytest.mark.parametrize("rank", [2, 6])
def test_an_error_costs_what_a_calibration_says(path: str, rank: int) -> None:
    model, inputs = pooled(), tokens()
    said, real = lost(model, path, rank, us.calibrate(model, inputs, include=BOTH), inputs)
    assert said == pytest.approx(real, rel=0.5)


def test_without_trying_errors_that_add_up_would_be_taken_for_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above would see of moments alone: a factor of the number of tokens."""
    model, inputs = pooled(), tokens()
    monkeypatch.setattr("understudy.fitting.calibrate.times_foretold", lambda *_: {})
    said, real = lost(model, "averaged", 4, us.calibrate(model, inputs, include=BOTH), inputs)
    assert real > TOKENS / 4 * said


def test_a_plan_spares_the_layer_whose_errors_add_up() -> None:
    model, inputs = pooled(), tokens()
    known = us.calibrate(model, inputs, include=BOTH)
    plan = us.plan(model, "pivoted", ratio=0.7, calibration=known, include=BOTH)
    kept = {layer.path: layer.params for layer in plan}
    assert kept["averaged"] > kept["picked"]  # its errors weigh four times as much, by chance an eighth


def test_trying_errors_leaves_the_network_and_its_hooks_alone() -> None:
    model = small()
    calls: list[str] = []
    model.bare.register_forward_hook(lambda *_: calls.append("layer"))
    model.norm.register_forward_hook(lambda *_: calls.append("network"))
    before = snapshot(model)
    us.calibrate(model, images())
    assert snapshot(model) == before
    assert calls.count("layer") == calls.count("network") > 0


def test_a_layer_that_no_gradient_reaches_stays_worthless() -> None:
    class Aside(Pooled):
        def forward(self, x: Tensor) -> Tensor:
            self.picked(x)
            found: Tensor = self.averaged(x).mean(1)
            return found

    known = us.calibrate(Aside().eval(), tokens(), include=BOTH)
    assert known.unreached == ("picked",)


def test_a_layer_with_one_output_has_no_smaller_rank_and_is_calibrated() -> None:
    model = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))
    known = us.calibrate(model, torch.randn(40, 16), include=["0", "2"])
    assert set(known.layers) == {"0", "2"}


class Choosing(Pooled):
    """Some samples of its outputs, by their values."""

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        return z[z[:, 0] > z[:, 0].mean()]


class Refusing(Pooled):
    """It computes nothing but what it was made for."""

    def forward(self, x: Tensor) -> Tensor:
        z = super().forward(x)
        if not torch.allclose(z, pooled()(x), atol=1e-4):
            raise ValueError("a scale is below 0")
        return z


class Bursting(Refusing):
    """Its outputs are infinite then."""

    def forward(self, x: Tensor) -> Tensor:
        try:
            return super().forward(x)
        except ValueError:
            return Pooled.forward(self, x) / 0


class Noisy(Pooled):
    """What it draws is larger than what it computes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 100 * torch.randn(len(x), 32)


def factors(model: nn.Module, inputs: Tensor) -> dict[str, float]:
    """By what G was scaled."""
    scaled = us.calibrate(model, inputs, include=BOTH).layers
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.fitting.calibrate.times_foretold", lambda *_: {})
        plain = us.calibrate(model, inputs, include=BOTH).layers
    gradients = [{path: seen.gradient for path, seen in found.items()} for found in (scaled, plain)]
    return {
        path: float(own.sum() / gradients[1][path].sum())  # type: ignore[union-attr]
        for path, own in gradients[0].items()
        if own is not None
    }


def alike(kind: type[Pooled]) -> Pooled:
    made = kind()
    made.load_state_dict(pooled().state_dict())
    return made.eval()


@pytest.mark.parametrize("kind", [Choosing, Refusing, Bursting])
def test_a_network_that_computes_otherwise_with_other_values_is_calibrated(kind: type[Pooled]) -> None:
    assert set(factors(alike(kind), tokens())) == set(BOTH)


def test_what_a_network_draws_is_no_loss() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        noisy, quiet = factors(alike(Noisy), tokens()), factors(pooled(), tokens())
        state = torch.random.get_rng_state()
        us.calibrate(pooled(), tokens(), include=BOTH)
        assert torch.equal(torch.random.get_rng_state(), state)
    assert noisy == pytest.approx(quiet, rel=1e-3)


def test_inputs_of_few_directions_do_not_make_a_layer_worthless() -> None:
    """A matrix of half the parameters holds all that such inputs see, but for rounding and the ridge."""
    flat = tokens()[..., :2] @ torch.randn(2, 16, generator=torch.Generator().manual_seed(1))
    for factor in factors(pooled(), flat).values():
        assert factor > 0.1


def test_constant_inputs_tell_nothing() -> None:
    assert factors(pooled(), torch.ones(8, TOKENS, 16)) == pytest.approx(dict.fromkeys(BOTH, 1.0))


def test_batches_are_run_as_they_come() -> None:
    sizes = []
    model = pooled()
    model.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    us.calibrate(model, [*tokens()[:40, None], tokens()[:3, :5]], include=BOTH)
    assert max(sizes) == 3


def test_without_gradients_nothing_is_tried() -> None:
    class Silent(Pooled):
        def forward(self, x: Tensor) -> Any:
            super().forward(x)

    known = us.calibrate(Silent(), tokens(), include=BOTH, gradients=False)
    assert all(seen.gradient is None for seen in known.layers.values())


@pytest.mark.parametrize(("sizes", "count", "found"), [((8, 8, 8), 6, (2, 2, 2)), ((1, 4, 4), 2, (1, 1))])
def test_a_few_samples_are_of_many_batches(
    sizes: tuple[int, ...], count: int, found: tuple[int, ...]
) -> None:
    batches = read_batches([torch.zeros(size, 3) for size in sizes], 100)
    assert tuple(batch.size for batch in some_of_each(batches, count)) == found
