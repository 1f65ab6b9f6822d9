"""Hashed: both indexings, what is saved of them, and how much they waste."""

from __future__ import annotations

import io
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from understudy.transforms.hashed import Hashed
from understudy.transforms.mixing import shuffled

small = st.integers(1, 30)
fractions = st.floats(0, 1)
seeds = st.integers(0, 2**63 - 1)


GOLDEN_BALANCED = [1, 4, 0, 0, 4, 2, 2, 3, 1, 0, 3, 1, 3, 5, 1, 2, 5, 0, 4, 5]
GOLDEN_ORDER = [17, 8, 5, 10, 1, 16, 3, 0, 15, 7, 18, 19, 9, 14, 6, 12, 4, 13, 2, 11]
GOLDEN_INDEPENDENT = [2, 3, 0, 1, 1, 3, 2, 3, 4, 1, 2, 0, 4, 4, 0, 2, 3, 0, 1, 4]


def knob_of(in_features: int, out_features: int, fraction: float) -> int:
    return 1 + round(fraction * (in_features * out_features - 1))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# ---- balanced ------------------------------------------------------------------------------------


@given(st.integers(1, 900), st.lists(seeds, min_size=1, max_size=4))
@settings(deadline=None, max_examples=40)
def test_every_seed_shuffles_as_by_itself_and_loses_no_number(size: int, chosen: list[int]) -> None:
    together = shuffled(size, chosen)
    assert torch.equal(together.sort(1).values, torch.arange(size).expand(len(chosen), size))
    assert torch.equal(together, torch.cat([shuffled(size, [seed]) for seed in chosen]))


@given(small, small, fractions, seeds)
@settings(deadline=None, max_examples=60)
def test_every_balanced_weight_is_used_equally_often_give_or_take_one(
    in_features: int, out_features: int, fraction: float, seed: int
) -> None:
    knob = knob_of(in_features, out_features, fraction)
    hashed = Hashed(in_features, out_features, knob, seed=seed)
    uses = hashed.index.bincount(minlength=knob)
    entries = in_features * out_features
    assert len(uses) == knob
    assert {*uses.tolist()} <= {entries // knob, -(-entries // knob)}
    assert int(uses.min()) >= 1
    assert hashed.unused_share() == 0


@pytest.mark.parametrize("indexing", ["balanced", "independent"])
@pytest.mark.parametrize("knob", [1, 2, 7, 36])
def test_last_hashed_weight_is_used(indexing: str, knob: int) -> None:
    reached = (
        Hashed(12, 12, knob, indexing=indexing, seed=seed).index.max().item()  # type: ignore[arg-type]
        for seed in range(5)
    )
    assert max(reached) == knob - 1


@given(small, small, fractions)
@settings(deadline=None, max_examples=40)
def test_balanced_gradient_is_the_scattered_one(in_features: int, out_features: int, fraction: float) -> None:
    hashed = Hashed(
        in_features, out_features, knob_of(in_features, out_features, fraction), dtype=torch.float64
    )
    probe = normal(out_features, in_features).double()
    (gradient,) = torch.autograd.grad((hashed.matrix() * probe).sum(), hashed.weight)
    scattered = torch.zeros_like(gradient).index_add_(0, hashed.index.long(), probe.flatten())
    torch.testing.assert_close(gradient, scattered)


def test_balanced_gradient_is_the_same_every_time_and_runs_where_only_deterministic_operations_may() -> None:
    hashed = Hashed(64, 48, 100)
    x, probe = normal(32, 64), normal(32, 48, seed=1)
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        gradients = [torch.autograd.grad((hashed(x) * probe).sum(), hashed.weight)[0] for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(was)
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


# ---- what is saved -------------------------------------------------------------------------------


@pytest.mark.parametrize("indexing", ["balanced", "independent"])
def test_index_is_int32_and_never_in_the_state_dict(indexing: str) -> None:
    hashed = Hashed(20, 30, 60, indexing=indexing)  # type: ignore[arg-type]
    assert hashed.index.dtype == hashed.order.dtype == torch.int32
    assert {*hashed.state_dict()} == {"weight", "_extra_state"}


def test_a_tenth_of_the_weights_takes_a_tenth_of_the_bytes() -> None:
    file = io.BytesIO()
    torch.save(Hashed(640, 640, 40_960).state_dict(), file)
    assert 0.1 <= file.tell() / (640 * 640 * 4) < 0.11


@given(small, small, fractions, seeds, seeds)
@settings(deadline=None, max_examples=30)
def test_a_state_dict_means_the_same_matrix_in_a_layer_of_another_seed(
    in_features: int, out_features: int, fraction: float, seed: int, other: int
) -> None:
    knob = knob_of(in_features, out_features, fraction)
    saved, loaded = (Hashed(in_features, out_features, knob, seed=s) for s in (seed, other))
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded.matrix(), saved.matrix())
    assert torch.equal(loaded.index, saved.index)
    assert loaded.seed == seed


def test_a_state_dict_fills_memory_that_was_never_filled() -> None:
    saved = Hashed(12, 8, 20, seed=3)
    loaded = Hashed(12, 8, 20, seed=3, device="meta").to_empty(device="cpu")
    loaded.index.fill_(19)  # whatever was in that memory
    loaded.order.fill_(95)
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded.matrix(), saved.matrix())
    assert torch.equal(loaded.order, saved.order)


def test_a_state_dict_can_be_assigned_to_a_layer_on_the_meta_device() -> None:
    saved = Hashed(12, 8, 20, seed=3)
    loaded = Hashed(12, 8, 20, seed=4, device="meta")
    loaded.load_state_dict(saved.state_dict(), assign=True)
    assert torch.equal(loaded.matrix(), saved.matrix())


def test_a_state_dict_of_the_other_indexing_is_refused() -> None:
    state = Hashed(12, 8, 20, indexing="independent").state_dict()
    with pytest.raises(ValueError, match="independent indexing, not balanced"):
        Hashed(12, 8, 20).load_state_dict(state)


def test_an_unknown_indexing_is_refused_with_the_legal_ones() -> None:
    with pytest.raises(ValueError, match="'random' is not one of balanced, independent"):
        Hashed(12, 8, 20, indexing="random")  # type: ignore[arg-type]


def test_the_index_of_a_seed_is_fixed_for_good() -> None:
    """Checkpoints hold the seed only: another stream would silently scramble every one of them."""
    assert Hashed(5, 4, 6, seed=2024).index.tolist() == GOLDEN_BALANCED
    assert Hashed(5, 4, 6, seed=2024).order.tolist() == GOLDEN_ORDER
    assert Hashed(5, 4, 6, seed=2024, indexing="independent").index.tolist() == GOLDEN_INDEPENDENT


def test_neighbours_of_a_balanced_index_are_unrelated() -> None:
    """An index along arithmetic progressions would be a bijection too, and share weights in stripes."""
    index = Hashed(256, 256, 2000, seed=5).index.reshape(256, 256).double() / 2000
    for one, other in ((index[:, 1:], index[:, :-1]), (index[1:], index[:-1])):
        assert abs(float(torch.corrcoef(torch.stack((one.flatten(), other.flatten())))[0, 1])) < 0.02
        shares = torch.histc((one - other) % 1, 10, 0, 1) / one.numel()
        assert float((shares - 0.1).abs().max()) < 0.01


# ---- waste ---------------------------------------------------------------------------------------


def standard_error_of_unused_share(entries: int, knob: int) -> float:
    """Of the empty boxes when `entries` balls fall into `knob` boxes."""
    one, two = (1 - 1 / knob) ** entries, (1 - 2 / knob) ** entries
    return math.sqrt(max(0.0, knob * one + knob * (knob - 1) * two - (knob * one) ** 2)) / knob


@pytest.mark.parametrize("compression", [0.1, 0.25, 0.5, 0.75, 1.0])
def test_independent_indexing_wastes_the_share_that_appendix_a_states(compression: float) -> None:
    in_features, out_features, draws = 200, 150, 9
    entries = in_features * out_features
    knob = round(compression * entries)
    shares = [
        Hashed(in_features, out_features, knob, indexing="independent", seed=seed).unused_share()
        for seed in range(draws)
    ]
    expected = Hashed.expected_unused_share(in_features, out_features, knob)
    error = standard_error_of_unused_share(entries, knob) / math.sqrt(draws)
    assert sum(shares) / draws == pytest.approx(expected, abs=3.5 * error)
    assert sum(shares) / draws == pytest.approx(math.exp(-1 / compression), abs=3.5 * error + 1 / knob)


@given(st.integers(1, 200), st.integers(1, 200), fractions)
@settings(deadline=None)
def test_the_expected_waste_is_near_the_exponential(
    in_features: int, out_features: int, fraction: float
) -> None:
    """(1 − 1/M)^N is below exp(−N/M), by less than 1/(eM)… and never negative."""
    knob = knob_of(in_features, out_features, fraction)
    expected = Hashed.expected_unused_share(in_features, out_features, knob)
    exponential = math.exp(-in_features * out_features / knob)
    assert 0 <= expected <= exponential + 1e-12
    assert exponential - expected <= 0.5 / knob
