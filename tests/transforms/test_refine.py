"""The descent of fits: the same for weights of any size, in whatever precision the caller computes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import understudy as us
from understudy.transforms.metric import Metric

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
