"""ACDC: the cosine transform, the riffle, the number of layers and the count against the published one."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from understudy.transforms import acdc, acdc_fit, base
from understudy.transforms.acdc import Acdc
from understudy.transforms.cosine import CosineTransform, riffle, unriffle
from understudy.transforms.metric import Metric
from understudy.transforms.stages import State


def textbook_cosine_transform(width: int) -> Tensor:
    """C[k, n] = √(2/N) cos(π (2n + 1) k / 2N), the row k = 0 divided by √2."""
    k = torch.arange(width, dtype=torch.float64)[:, None]
    n = torch.arange(width, dtype=torch.float64)[None]
    matrix = math.sqrt(2 / width) * torch.cos(math.pi * (2 * n + 1) * k / (2 * width))
    matrix[0] /= math.sqrt(2)
    return matrix


def textbook_riffle(width: int) -> Tensor:
    """The permutation matrix that deals the two halves in turn, the longer half first."""
    half = (width + 1) // 2
    source = [k // 2 if k % 2 == 0 else half + k // 2 for k in range(width)]
    return torch.eye(width, dtype=torch.float64)[source]


def generic(in_features: int, out_features: int, layers: int) -> Acdc:
    """Diagonals without structure."""
    acdc = Acdc(in_features, out_features, layers, dtype=torch.float64)
    generator = torch.Generator().manual_seed(layers)
    with torch.no_grad():
        for diagonal in (acdc.a, acdc.d):
            diagonal.copy_(torch.randn(diagonal.shape, generator=generator, dtype=torch.float64))
    return acdc


@pytest.mark.parametrize("width", [*range(1, 18), 64, 100])
def test_cosine_transform_is_the_orthonormal_textbook_one_at_any_size(width: int) -> None:
    eye = torch.eye(width, dtype=torch.float64)
    cosine, expected = CosineTransform(width, eye), textbook_cosine_transform(width)
    torch.testing.assert_close(cosine.forward(eye).T, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(cosine.inverse(eye).T, expected.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(expected @ expected.T, eye, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("width", "dealt"),
    [(1, [0]), (2, [0, 1]), (5, [0, 3, 1, 4, 2]), (6, [0, 3, 1, 4, 2, 5]), (7, [0, 4, 1, 5, 2, 6, 3])],
)
def test_riffle_interleaves_the_halves_and_gives_the_odd_one_to_the_first(
    width: int, dealt: list[int]
) -> None:
    assert riffle(torch.arange(width)).tolist() == dealt
    assert unriffle(torch.tensor(dealt)).tolist() == list(range(width))


@given(st.integers(2, 20), st.integers(2, 20), st.data())
@settings(deadline=None, max_examples=40)
def test_with_unit_diagonals_every_layer_is_one_riffle(
    in_features: int, out_features: int, data: st.DataObject
) -> None:
    layers = data.draw(st.sampled_from(Acdc.knobs(in_features, out_features)))
    acdc = Acdc(in_features, out_features, layers, dtype=torch.float64)
    with torch.no_grad():
        acdc.a.fill_(1)
        acdc.d.fill_(1)
    shuffled = torch.linalg.matrix_power(textbook_riffle(max(in_features, out_features)), layers)
    torch.testing.assert_close(acdc.matrix(), shuffled[:out_features, :in_features], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("in_features", "out_features"), [(12, 12), (8, 13), (13, 8), (9, 9)])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_acdc_is_the_product_its_docstring_states(in_features: int, out_features: int, layers: int) -> None:
    acdc = generic(in_features, out_features, layers)
    width = max(in_features, out_features)
    cosine, shuffle = textbook_cosine_transform(width), textbook_riffle(width)
    product = torch.eye(width, dtype=torch.float64)
    crop = torch.zeros(width - out_features, dtype=torch.float64)  # entries the outermost A does not have
    diagonals = torch.cat([acdc.a.detach()[:out_features], crop, acdc.a.detach()[out_features:]])
    for a, d in zip(diagonals.reshape(layers, width), acdc.d.detach(), strict=True):
        product = product @ torch.diag(a) @ cosine @ torch.diag(d) @ cosine.T @ shuffle
    torch.testing.assert_close(acdc.matrix(), product[:out_features, :in_features])


@pytest.mark.parametrize("at_once", [1, 40, 3 * 17])  # values: a unit vector at a time, two, three
def test_a_wide_matrix_is_formed_some_unit_vectors_at_a_time(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    transform = Acdc(17, 23, 2, dtype=torch.float64)
    whole = transform.matrix()
    pushed: list[int] = []
    apply = transform.apply_rows

    def counted(state: State, x: Tensor) -> Tensor:
        pushed.append(len(x))
        return apply(state, x)

    monkeypatch.setattr(base, "_UNITS", at_once)
    monkeypatch.setattr(transform, "apply_rows", counted)
    torch.testing.assert_close(transform.matrix(), whole)
    assert max(pushed) == max(1, at_once // 17)
    assert sum(pushed) == 17


@pytest.mark.parametrize(("at_once", "chunks"), [(1, 5), (34, 3), (17 * 5, 1)])
def test_a_matrix_of_few_rows_is_formed_row_by_row(
    monkeypatch: pytest.MonkeyPatch, at_once: int, chunks: int
) -> None:
    transform = generic(17, 5, 2)
    images = transform(torch.eye(17, dtype=torch.float64)).T  # of the unit vectors of the inputs
    pushed: list[int] = []

    def counted(cosine: CosineTransform, diagonals: Tensor, chunk: Tensor) -> Tensor:
        pushed.append(len(chunk))
        return acdc_fit.rows_before_scale(cosine, diagonals, chunk)

    monkeypatch.setattr(acdc, "_AT_ONCE", at_once)
    monkeypatch.setattr(acdc, "rows_before_scale", counted)
    formed = transform.matrix()
    torch.testing.assert_close(formed, images)
    assert (sum(pushed), len(pushed)) == (5, chunks)
    for seen, expected in zip(
        torch.autograd.grad(formed.square().sum(), [transform.a, transform.d]),
        torch.autograd.grad(images.square().sum(), [transform.a, transform.d]),
        strict=True,
    ):
        torch.testing.assert_close(seen, expected)


def test_half_precision_is_formed_as_such() -> None:
    made = Acdc(17, 5, 2, dtype=torch.bfloat16)
    assert made.matrix().dtype == torch.bfloat16
    torch.testing.assert_close(made.matrix(), made.float().matrix().bfloat16())


@pytest.mark.parametrize("layers", [1, 3, 8])
def test_a_fresh_square_map_is_orthogonal_up_to_its_scale(layers: int) -> None:
    matrix = Acdc(16, 16, layers, dtype=torch.float64).matrix().detach()
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-6)


# ---- the fit -------------------------------------------------------------------------------------


def errors(in_features: int, out_features: int, layers: int) -> tuple[float, float]:
    """Of the start and of the projection, to a random matrix."""
    acdc = generic(in_features, out_features, layers)
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(out_features, in_features, generator=generator, dtype=torch.float64)
    before = float((acdc.matrix().detach() - target).norm())
    acdc.project_(target)
    return before, float((acdc.matrix().detach() - target).norm())


@pytest.mark.parametrize(("in_features", "out_features"), [(24, 24), (24, 9), (9, 24)])
def test_a_fit_that_must_save_work_does_less_and_is_never_worse_than_its_start(
    in_features: int, out_features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for work, rows in ((10**9, 10**9), (2 * 4 * 24**3, 10**9), (0, 10**9), (0, 5 * 24 * 3)):
        monkeypatch.setattr(acdc_fit, "WORK", work)
        monkeypatch.setattr(acdc_fit, "_ENTRIES_OF_LAYERS", rows)
        before, after = errors(in_features, out_features, 3)
        assert after < before
        found.append(after)
    assert found == sorted(found)
    assert len({*found}) == 4  # all diagonals, the outermost ones, all rows, five rows


def test_where_work_is_short_every_row_gets_its_best_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    acdc = generic(12, 8, 3)
    target = generic(12, 8, 2).matrix().detach()
    rows = acdc.matrix().detach()
    best = (rows * target).sum(1, keepdim=True) / rows.square().sum(1, keepdim=True) * rows
    monkeypatch.setattr(acdc_fit, "WORK", 0)
    acdc.project_(target)
    torch.testing.assert_close(acdc.matrix().detach(), best)


@torch.no_grad()
@pytest.mark.parametrize("has_worth", [False, True])
def test_in_a_metric_that_no_pass_is_paid_for_in_no_row_s_scale_can_be_better(has_worth: bool) -> None:
    torch.manual_seed(0)
    out_features, in_features = 9, 20
    seen, worth = (torch.randn(n, n, dtype=torch.float64) for n in (in_features, out_features))
    metric = Metric.of(seen @ seen.T, worth @ worth.T if has_worth else None)
    target = torch.randn(out_features, in_features, dtype=torch.float64)
    made = Acdc(in_features, out_features, 3, dtype=torch.float64)

    def loss(diagonals: Tensor) -> float:
        made._take(diagonals)
        return float(metric.loss(made.matrix() - target))

    start = made._stacked(torch.float64)
    fitted = acdc_fit.fit_in(metric, target, start, work=0)
    least = loss(fitted)
    assert least < min(loss(start), float(metric.loss(target)))
    for row in range(out_features):
        for step in (-1e-3, 1e-3):
            moved = fitted.clone()
            moved[0, row] += step
            assert loss(moved) > least


@pytest.mark.parametrize("layers", [1, 8, 40])
def test_the_work_of_a_fit_is_bounded_however_wide_and_deep_the_map(
    layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 100 * 200 * 2
    sent: list[int] = []
    forward = CosineTransform.forward

    def counted(self: CosineTransform, x: Tensor) -> Tensor:
        sent.append(x.numel())
        return forward(self, x)

    acdc = Acdc(200, 100, layers)
    monkeypatch.setattr(CosineTransform, "forward", counted)
    monkeypatch.setattr(acdc_fit, "WORK", 4 * 200**3)  # pays for one diagonal, not for the product of all
    monkeypatch.setattr(acdc_fit, "_ENTRIES_OF_LAYERS", bound)
    acdc.project_(torch.ones(100, 200))
    assert 0 < sum(sent) <= bound


def test_depths_that_no_pass_can_reach_are_told_by_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    formed: list[int] = []
    form = Acdc.matrix

    def counted(self: Acdc) -> Tensor:
        formed.append(self.knob)
        return form(self)

    monkeypatch.setattr(Acdc, "matrix", counted)
    monkeypatch.setattr(acdc, "WORK", 10 * 6 * 4 * 24**3)  # a trial pays for one pass over two layers
    target = torch.randn(10, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    metric = Metric.of(torch.diag(torch.logspace(0, -2, 24, dtype=torch.float64)))
    one, two, *deeper = Acdc.fit_losses(target, metric, [1, 2, 3, 4, 5])
    assert formed == [1, 2, 3]
    assert two < one < deeper[0] == deeper[1] == deeper[2] < float(metric.loss(target))


# ---- costs ---------------------------------------------------------------------------------------


def published(width: int, layers: int) -> float:
    return layers * (4 * width + 5 * width * math.log2(width))


@given(st.integers(128, 4096), st.integers(1, 24))
@settings(deadline=None)
def test_our_count_is_within_15_percent_of_the_published_estimate(width: int, layers: int) -> None:
    assert Acdc.mult_adds(width, width, layers) == pytest.approx(published(width, layers), rel=0.15)


def crossing(layers: int) -> int:
    """The first width from which the layers need fewer mult-adds than the dense matrix."""
    dearer = [
        width for width in range(2 * layers, 2000) if Acdc.mult_adds(width, width, layers) > width * width
    ]
    return max(dearer) + 1


def test_twelve_layers_cross_the_dense_cost_near_width_600() -> None:
    widths = range(24, 2000)
    assert 590 <= max(width for width in widths if published(width, 12) > width * width) <= 610
    assert 600 <= crossing(12) <= 650


@given(st.integers(1, 300), st.integers(1, 300), st.data())
@settings(deadline=None, max_examples=50)
def test_acdc_holds_two_diagonals_a_layer(in_features: int, out_features: int, data: st.DataObject) -> None:
    layers = data.draw(st.sampled_from(Acdc.knobs(in_features, out_features)))
    width = max(in_features, out_features)
    cropped = width - out_features  # the outermost A needs no entries for outputs that are cropped away
    assert Acdc.params(in_features, out_features, layers) == 2 * width * layers - cropped
    acdc = Acdc(in_features, out_features, layers, device="meta")
    assert acdc.a.shape == (layers * width - cropped,)
    assert acdc.d.shape == (layers, width)


@pytest.mark.parametrize(("in_features", "out_features"), [(12, 12), (9, 13), (13, 9)])
def test_a_graph_forms_many_layers_in_few_operations(
    in_features: int, out_features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    transform = Acdc(in_features, out_features, 4, dtype=torch.float64)
    transform.reset_parameters(generator=torch.Generator().manual_seed(3))
    wanted, product = transform.matrix(), acdc._product
    calls: list[int] = []

    def noted(factors: Tensor) -> Tensor:
        calls.append(len(factors))
        return product(factors)

    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    monkeypatch.setattr(acdc, "_product", noted)
    torch.testing.assert_close(transform.matrix(), wanted)
    assert calls == [4]
    monkeypatch.setattr(acdc, "_AT_ONCE", 3 * max(in_features, out_features) ** 2)
    torch.testing.assert_close(transform.matrix(), wanted)
    assert calls == [4, 3, 1]
