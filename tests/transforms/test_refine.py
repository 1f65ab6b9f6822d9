"""The descent of fits: the same for weights of any size, in whatever precision the caller computes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from understudy.transforms.metric import Metric
from understudy.transforms.refine import Effort, making, refine_

NAMES = ["kronecker", "shuffle", "tensor_train", "hashed", "low_rank_sparse", "toeplitz_like"]
WIDTH = 24


def weight() -> Tensor:
    return torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def metric() -> Metric:
    inputs, outputs = (
        torch.randn(200, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        * torch.linspace(0.1, 2, WIDTH)
        for seed in (2, 3)
    )
    return Metric.of(inputs.T @ inputs / 200, outputs.T @ outputs / 200)


def lost(name: str, size: float = 1.0) -> float:
    """Of what the weight is worth, after a fit to a weight that is so many times as large."""
    kind = us.get_transform(name)
    fitted = kind(WIDTH, WIDTH, kind.knob_at(WIDTH, WIDTH, 0.4), seed=1, dtype=torch.float64)
    fitted.fit_(size * weight(), metric())
    found = metric().loss(fitted.matrix().detach() / size - weight()) / metric().loss(weight())
    return float(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_is_as_near_to_weights_of_any_size(name: str) -> None:
    usual = lost(name)
    assert 0 < usual < 1
    for size in (1e-12, 1e8):
        assert lost(name, size) == pytest.approx(usual, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
def test_a_fit_takes_no_rounding_from_its_caller(name: str) -> None:
    usual = lost(name)
    with torch.autocast("cpu", torch.bfloat16):
        assert lost(name) == pytest.approx(usual, rel=1e-6)


def test_a_part_that_a_parameter_does_not_change_does_not_lead_it_astray() -> None:
    """U V + S: with S held, W is linear in U but for a constant. A refined fit gains more than a fifth."""
    kind = us.get_transform("low_rank_sparse")
    plain = kind(WIDTH, WIDTH, kind.knob_at(WIDTH, WIDTH, 0.4), seed=1, dtype=torch.float64)
    plain.project_(weight())
    before = float(metric().loss(plain.matrix().detach() - weight()) / metric().loss(weight()))
    assert lost("low_rank_sparse") < 0.8 * before


@pytest.mark.parametrize("name", NAMES)
def test_leading_directions_of_the_inputs_show_the_way_where_they_are_many(name: str) -> None:
    """Two directions of 24 lead here: most of what a descent by all of them gains, never a loss."""
    kind = us.get_transform(name)
    plain = kind(WIDTH, WIDTH, kind.knob_at(WIDTH, WIDTH, 0.4), seed=1, dtype=torch.float64)
    plain.project_(weight())
    before = float(metric().loss(plain.matrix().detach() - weight()) / metric().loss(weight()))
    with making(Effort(3, 20, work=0)):
        by_leading = lost(name)
    assert by_leading <= before * (1 + 1e-9)
    assert before - by_leading > 0.5 * (before - lost(name))


def test_what_leads_is_told_apart_from_what_is_left() -> None:
    turn = torch.linalg.qr(weight()).Q
    values = torch.full((WIDTH,), 0.5, dtype=torch.float64)
    values[:2] = torch.tensor([90.0, 40.0])
    basis, above, rest = Metric((turn * values) @ turn.T).leading
    assert rest == pytest.approx(0.5, rel=1e-3)
    assert sorted(above.tolist()) == pytest.approx([39.5, 89.5], rel=1e-2)
    assert (basis.T.double() @ turn[:, :2]).abs().max(0).values.tolist() == pytest.approx([1, 1], rel=1e-2)


class Squared(nn.Module):
    """W = θ² beside φ: linear in one of its parameters alone."""

    def __init__(self) -> None:
        super().__init__()
        self.curved, self.straight = (nn.Parameter(torch.full((4, 4), size)) for size in (3.0, 1.0))

    def matrix(self) -> Tensor:
        return self.curved.square() + self.straight


def test_a_parameter_in_which_a_matrix_is_not_linear_stays() -> None:
    made = Squared()
    target = torch.eye(4, dtype=torch.float64)
    refine_(made, made.matrix, target, None)
    assert made.curved.eq(3).all()
    assert torch.allclose(made.matrix().double(), target, atol=1e-5)
