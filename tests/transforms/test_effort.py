"""How much a descent does: less where a fit is only to compare, for families that know nothing of it too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import understudy as us
from understudy.transforms import refine
from understudy.transforms.metric import Metric
from understudy.transforms.refine import FULL, QUICK, Effort, making


def matrix() -> Tensor:
    return torch.randn(12, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def fitted(name: str, metric: Metric | None = None) -> float:
    """What a fit loses."""
    target = matrix()
    kind = us.get_transform(name)
    made: Any = kind(20, 12, list(kind.knobs(20, 12))[2], dtype=torch.float64)
    made.fit_(target, metric)
    error = made.matrix().detach() - target
    return float(error.square().sum() if metric is None else metric.loss(error))


@pytest.mark.parametrize("name", ["toeplitz_like", "ldr"])  # whose plain fit is a descent
def test_less_effort_loses_no_less_and_ends_with_its_block(name: str) -> None:
    whole = fitted(name)
    with making(Effort(1, 2)):
        little = fitted(name)
        with making(FULL):
            assert fitted(name) == whole
        assert fitted(name) == little
    assert little > whole
    assert fitted(name) == whole


def test_an_error_within_ends_it_too() -> None:
    with pytest.raises(ZeroDivisionError), making(QUICK):
        raise ZeroDivisionError
    assert refine._EFFORT.get() == FULL


def test_the_fit_to_data_of_any_family_makes_it() -> None:
    metric = Metric.of(torch.diag(torch.logspace(0, -2, 20, dtype=torch.float64)))
    whole = fitted("kronecker", metric)
    with making(Effort(1, 1)):
        assert fitted("kronecker", metric) > whole


def test_a_quick_compression_makes_less_effort_than_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Effort] = []
    descend = refine.refine_

    def watched(*args: Any) -> None:
        seen.append(refine._EFFORT.get())
        descend(*args)

    monkeypatch.setattr("understudy.transforms.toeplitz_like.refine_", watched)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    data = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    for quick, effort in ((True, QUICK), (False, FULL)):
        seen.clear()
        us.compression(model, "toeplitz_like", ratio=0.8, data=data, include=["*"], quick=quick)
        assert effort in seen
        assert (FULL in seen) == (not quick)
