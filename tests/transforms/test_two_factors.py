"""Taps between two factors, fitted to kernels: least squares in turn, plainly and in a metric."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from understudy.transforms import get_transform, known_transforms
from understudy.transforms.canonical import canonical
from understudy.transforms.inside import Inside, inside_losses
from understudy.transforms.metric import Metric
from understudy.transforms.registry import with_two_factors
from understudy.transforms.two_factors import TwoFactors

FAMILIES = [one for one in known_transforms().values() if issubclass(one, TwoFactors)]
IN, OUT, AREA = 8, 16, 9


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def build(family: type[TwoFactors], place: float = 0.5, seed: int = 3) -> Inside:
    knobs = family.knobs(IN, OUT)
    knob = knobs[round(place * (len(knobs) - 1))]
    transform = family(IN, OUT, knob, seed=seed, dtype=torch.float64)
    return Inside(transform, values(family.waist(IN, OUT, knob).width, AREA, seed=seed))


def metric() -> Metric:
    seen = values(400, IN * AREA, seed=5) * torch.linspace(0.1, 3, IN * AREA, dtype=torch.float64)
    return Metric.of(seen.T @ seen / 400, torch.diag(torch.linspace(0.1, 3, OUT, dtype=torch.float64)))


def error(inside: Inside, wanted: Tensor) -> float:
    return float((inside.matrix().detach() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_waist_adds_up(family: type[TwoFactors]) -> None:
    for knob in family.knobs(IN, OUT):
        width, before, after = family.waist(IN, OUT, knob)
        assert before + after == family.mult_adds(IN, OUT, knob)
        made = family(IN, OUT, knob)
        first = made.prepare(made.legal_orders[1].name)[0]
        assert first.rows(torch.zeros(1, IN)).shape == (1, width)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_a_kernel_of_the_family_is_found_again(family: type[TwoFactors], place: float) -> None:
    wanted = build(family, place, seed=11).matrix().detach()
    found = build(family, place)
    found.project_(wanted)
    assert error(found, wanted) < (0.5 if family.descends or place == 1 else 1e-3)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_fit_in_a_metric_is_better_there(family: type[TwoFactors]) -> None:
    wanted, known = values(OUT, IN * AREA, seed=7), metric()
    plain, fitted = build(family), build(family)
    plain.project_(wanted)
    fitted.fit_(wanted, known)
    lost = float(known.loss(plain.matrix().detach() - wanted))
    assert float(known.loss(fitted.matrix().detach() - wanted)) < 0.99 * lost


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_a_fit_loses_falls_along_the_knobs(family: type[TwoFactors]) -> None:
    wanted, knobs = values(OUT, IN * AREA, seed=7), family.knobs(IN, OUT)
    losses = inside_losses(family, wanted, AREA, metric(), [knobs[0], knobs[-1]])
    assert losses[0] > losses[1] > 0


def test_a_kernel_of_nothing_is_fitted_by_nothing() -> None:
    for family in FAMILIES:
        inside = build(family)
        inside.project_(torch.zeros(OUT, IN * AREA, dtype=torch.float64))
        assert float(inside.matrix().detach().abs().max()) == 0


def test_terms_are_better_than_those_of_a_matrix_cut_to_terms() -> None:
    kernel = values(2, 12, 8, 9, seed=3)
    u, v, taps = canonical(kernel, 4)
    assert (u.shape, v.shape, taps.shape) == ((2, 12, 4), (2, 4, 8), (2, 4, 9))
    torch.testing.assert_close(taps.norm(dim=-1), torch.ones(2, 4, dtype=torch.float64))
    torch.testing.assert_close(u.norm(dim=-2), v.norm(dim=-1))
    left, singular, right = torch.linalg.svd(kernel.flatten(-2), full_matrices=False)
    rows = (singular[:, :4, None] * right[:, :4]).reshape(2, 4, 8, 9)
    one_term = torch.linalg.svd(rows)
    cut = one_term.U[..., :1] * one_term.S[..., :1, None] @ one_term.Vh[..., :1, :]
    start = (left[..., :4] @ cut.flatten(-2)).reshape(kernel.shape)
    made = torch.einsum("bor,bri,bra->boia", u, v, taps)
    assert float((made - kernel).norm()) < 0.97 * float((start - kernel).norm())


def test_a_transform_without_two_factors_is_told_which_have_them() -> None:
    assert with_two_factors(get_transform("btt")) is get_transform("btt")
    with pytest.raises(ValueError, match=r"hashed cannot be taken inside: .*low_rank, shuffle, btt, blast"):
        with_two_factors(get_transform("hashed"))
