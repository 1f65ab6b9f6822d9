"""What an error of a layer does in fact: errors that add up cost more than moments foretell."""

from __future__ import annotations

import copy

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


@pytest.mark.parametrize(("sizes", "count", "found"), [((8, 8, 8), 6, (2, 2, 2)), ((1, 4, 4), 2, (1, 1))])
def test_a_few_samples_are_of_many_batches(
    sizes: tuple[int, ...], count: int, found: tuple[int, ...]
) -> None:
    batches = read_batches([torch.zeros(size, 3) for size in sizes], 100)
    assert tuple(batch.size for batch in some_of_each(batches, count)) == found
