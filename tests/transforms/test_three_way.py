"""Tensor-Train and Tucker: the split of a matrix into three dimensions, and the orders of contraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import opt_einsum
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from understudy.transforms import Transform
from understudy.transforms.tensor_train import TensorTrain
from understudy.transforms.three_way import Dimensions, ThreeWay, split
from understudy.transforms.tucker import Tucker

VERY_MANY = 10**9
sizes = st.one_of(st.integers(1, 300), st.sampled_from((64, 160, 320, 512, 640, 768, 1024, 2048)))
fractions = st.floats(0, 1)

Network = tuple[str, tuple[tuple[int, ...], ...]]  # an einsum, and the shapes of its operands


def knob_of(transform: type[Transform], in_features: int, out_features: int, fraction: float) -> int:
    knobs = transform.knobs(in_features, out_features)
    return knobs[round(fraction * (len(knobs) - 1))]


def once_m_is_formed(
    transform: type[ThreeWay], in_features: int, out_features: int, knob: int, vectors: int
) -> Network:
    """x, O, M and N as `three_way` names them."""
    a, b, c, d = split(in_features, out_features)
    p, q = transform.outer_ranks(in_features, out_features, knob)
    return "ncd,ap,bpcq,qd->nba", ((vectors, c, d), (a, p), (b, p, c, q), (q, d))


def from_four_factors(in_features: int, out_features: int, knob: int, vectors: int) -> Network:
    """x, O, the core, B and N of Tucker."""
    a, b, c, d = split(in_features, out_features)
    p, m, q = Tucker.ranks(in_features, out_features, knob)
    return "ncd,ap,pmq,bcm,qd->nba", ((vectors, c, d), (a, p), (p, m, q), (b, c, m), (q, d))


def mult_adds_by_opt_einsum(network: Network) -> int:
    """Of its optimal path: for each pairwise contraction the product of all sizes that take part."""
    expression, shapes = network
    path, _ = opt_einsum.contract_path(expression, *shapes, shapes=True, optimize="optimal")
    operands, result = expression.split("->")
    terms = operands.split(",")
    size = {
        index: n
        for term, shape in zip(terms, shapes, strict=True)
        for index, n in zip(term, shape, strict=True)
    }
    total = 0
    for pair in path:
        joined = {index for place in sorted(pair, reverse=True) for index in terms.pop(place)}
        total += math.prod(size[index] for index in joined)
        terms.append("".join(joined & {*result, *"".join(terms)}))
    return total


def fewest_mult_adds(network: Network) -> int:
    """Over all trees of pairwise contractions; opt_einsum weighs sums double, so its choice may cost more."""
    expression, shapes = network
    operands, result = expression.split("->")
    terms = operands.split(",")
    size = {
        index: n
        for term, shape in zip(terms, shapes, strict=True)
        for index, n in zip(term, shape, strict=True)
    }
    everything = frozenset(range(len(terms)))

    def open_indices(part: frozenset[int]) -> set[str]:
        outside = {*result, *"".join(terms[k] for k in everything - part)}
        return {*"".join(terms[k] for k in part)} & outside

    @cache
    def cost(part: frozenset[int]) -> int:
        if len(part) == 1:
            return 0
        head, *rest = sorted(part)
        totals = []
        for chosen in range(2 ** len(rest) - 1):
            one = frozenset({head, *(k for place, k in enumerate(rest) if chosen >> place & 1)})
            other = part - one
            step = math.prod(size[index] for index in open_indices(one) | open_indices(other))
            totals.append(cost(one) + cost(other) + step)
        return min(totals)

    return cost(everything)


# ---- the split -----------------------------------------------------------------------------------


@given(sizes, sizes)
@settings(deadline=None)
def test_split_multiplies_back_to_the_shape(in_features: int, out_features: int) -> None:
    a, b, c, d = split(in_features, out_features)
    assert a * b == out_features
    assert c * d == in_features


@given(st.integers(1, 100), st.integers(1, 100))
@settings(deadline=None, max_examples=50)
def test_no_other_split_is_more_even(in_features: int, out_features: int) -> None:
    def unevenness(dimensions: Sequence[int]) -> float:
        a, b, c, d = dimensions
        logarithms = [math.log(a), math.log(b * c), math.log(d)]
        mean = sum(logarithms) / 3
        return sum((logarithm - mean) ** 2 for logarithm in logarithms)

    every = (
        (out_features // b, b, c, in_features // c)
        for b in range(1, out_features + 1)
        for c in range(1, in_features + 1)
        if out_features % b == 0 and in_features % c == 0
    )
    assert unevenness(split(in_features, out_features)) <= min(map(unevenness, every)) + 1e-8


def test_the_worked_example_comes_out_exactly() -> None:
    assert split(640, 640) == Dimensions(a=80, b=8, c=8, d=80)  # 80 · 64 · 80
    assert TensorTrain.mult_adds(640, 640, 28) == 86_016
    assert TensorTrain.params(640, 640, 28) == 80 * 28 + 28 * 64 * 28 + 28 * 80
    assert TensorTrain.ideal_mult_adds(640, 640, 28) == 86_016
    assert pytest.approx(4.8, abs=0.05) == 640 * 640 / 86_016


# ---- the orders ----------------------------------------------------------------------------------


@given(sizes, sizes, fractions)
@settings(deadline=None, max_examples=100)
def test_tensor_train_takes_the_order_that_opt_einsum_finds_for_very_many_vectors(
    in_features: int, out_features: int, fraction: float
) -> None:
    knob = knob_of(TensorTrain, in_features, out_features, fraction)
    ours = TensorTrain.executed_mult_adds(in_features, out_features, knob, VERY_MANY)
    best = mult_adds_by_opt_einsum(once_m_is_formed(TensorTrain, in_features, out_features, knob, VERY_MANY))
    assert ours == pytest.approx(best, rel=1e-6)


@given(sizes, sizes, fractions, st.one_of(st.integers(1, 8), st.integers(1, 4096)))
@settings(deadline=None, max_examples=100)
def test_tensor_train_takes_the_cheapest_of_all_orders_for_any_number_of_vectors(
    in_features: int, out_features: int, fraction: float, vectors: int
) -> None:
    knob = knob_of(TensorTrain, in_features, out_features, fraction)
    network = once_m_is_formed(TensorTrain, in_features, out_features, knob, vectors)
    ours = TensorTrain.executed_mult_adds(in_features, out_features, knob, vectors)
    assert ours == fewest_mult_adds(network)
    assert ours <= mult_adds_by_opt_einsum(network)


widths = st.one_of(st.integers(16, 300), st.sampled_from((64, 160, 320, 512, 640, 768, 1024, 2048)))


@given(widths, widths, fractions, st.one_of(st.integers(1, 8), st.integers(1, 4096), st.just(VERY_MANY)))
@settings(deadline=None, max_examples=200)
def test_tucker_is_within_a_quarter_of_the_order_that_opt_einsum_finds(
    in_features: int, out_features: int, fraction: float, vectors: int
) -> None:
    knob = knob_of(Tucker, in_features, out_features, fraction)
    ours = Tucker.executed_mult_adds(in_features, out_features, knob, vectors)
    best = mult_adds_by_opt_einsum(from_four_factors(in_features, out_features, knob, vectors))
    assert ours <= 1.25 * best


@given(sizes, sizes, fractions)
@settings(deadline=None, max_examples=100)
def test_tucker_is_never_dearer_for_very_many_vectors_than_once_m_is_formed(
    in_features: int, out_features: int, fraction: float
) -> None:
    knob = knob_of(Tucker, in_features, out_features, fraction)
    ours = Tucker.executed_mult_adds(in_features, out_features, knob, VERY_MANY)
    formed = mult_adds_by_opt_einsum(once_m_is_formed(Tucker, in_features, out_features, knob, VERY_MANY))
    assert ours <= formed * (1 + 1e-6)


@given(sizes, sizes, fractions, st.integers(1, 4096), st.integers(1, 4096))
@settings(deadline=None, max_examples=50)
def test_more_vectors_never_cost_fewer_mult_adds(
    in_features: int, out_features: int, fraction: float, vectors: int, more: int
) -> None:
    for transform in (TensorTrain, Tucker):
        knob = knob_of(transform, in_features, out_features, fraction)
        fewer = transform.executed_mult_adds(in_features, out_features, knob, vectors)
        assert fewer <= transform.executed_mult_adds(in_features, out_features, knob, vectors + more)


# ---- the maps ------------------------------------------------------------------------------------

small = st.integers(1, 40)


@given(small, small, fractions)
@settings(deadline=None, max_examples=40)
def test_tensor_train_is_the_sum_its_docstring_states(
    in_features: int, out_features: int, fraction: float
) -> None:
    knob = knob_of(TensorTrain, in_features, out_features, fraction)
    train = TensorTrain(in_features, out_features, knob, dtype=torch.float64)
    matrix = torch.einsum("ap,bpcq,qd->bacd", train.out_factor, train.core, train.in_factor)
    torch.testing.assert_close(train.matrix(), matrix.reshape(out_features, in_features))


@given(small, small, fractions)
@settings(deadline=None, max_examples=40)
def test_tucker_is_the_sum_its_docstring_states(in_features: int, out_features: int, fraction: float) -> None:
    _, b, c, _ = split(in_features, out_features)
    tucker = Tucker(
        in_features, out_features, knob_of(Tucker, in_features, out_features, fraction), dtype=torch.float64
    )
    middle = tucker.middle_factor.reshape(b, c, -1)
    matrix = torch.einsum("pmq,ap,bcm,qd->bacd", tucker.core, tucker.out_factor, middle, tucker.in_factor)
    torch.testing.assert_close(tucker.matrix(), matrix.reshape(out_features, in_features))


@pytest.mark.parametrize("transform", [TensorTrain, Tucker])
@given(small, small, fractions)
@settings(deadline=None, max_examples=30)
def test_every_order_gives_the_same_map(
    transform: type[ThreeWay], in_features: int, out_features: int, fraction: float
) -> None:
    knob = knob_of(transform, in_features, out_features, fraction)
    built = transform(in_features, out_features, knob, dtype=torch.float64)
    x = torch.randn(3, in_features, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = x @ built.matrix().T
    for order in built.legal_orders:
        state = built.prepare(order.name)
        torch.testing.assert_close(built.apply_rows(state, x), expected)
        torch.testing.assert_close(built.apply_columns(state, x.T[None])[0].T, expected)


def unfolding(transform: ThreeWay, matrix: Tensor, mode: int) -> Tensor:
    a, b, c, d = split(transform.in_features, transform.out_features)
    tensor = matrix.reshape(b, a, c, d).permute(1, 0, 2, 3).reshape(a, b * c, d)
    return tensor.movedim(mode, 0).reshape(tensor.shape[mode], -1)


@pytest.mark.parametrize(("transform", "modes"), [(TensorTrain, (0, 2)), (Tucker, (0, 1, 2))])
@given(small, small, fractions)
@settings(deadline=None, max_examples=40)
def test_the_squared_projection_error_is_at_most_what_the_unfoldings_lose(
    transform: type[ThreeWay], modes: tuple[int, ...], in_features: int, out_features: int, fraction: float
) -> None:
    """The bound of TT-SVD and of the higher-order SVD: together the cuts lose no more than each alone."""
    knob = knob_of(transform, in_features, out_features, fraction)
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(out_features, in_features, generator=generator, dtype=torch.float64)
    built = transform(in_features, out_features, knob, dtype=torch.float64)
    built.project_(target)
    p, q = transform.outer_ranks(in_features, out_features, knob)
    ranks = {0: p, 2: q, 1: Tucker.ranks(in_features, out_features, knob)[1] if transform is Tucker else 0}
    lost = sum(
        float(torch.linalg.svdvals(unfolding(built, target, mode))[ranks[mode] :].square().sum())
        for mode in modes
    )
    error = float((built.matrix().detach() - target).square().sum())
    assert error <= lost + 1e-9 * float(target.square().sum())
