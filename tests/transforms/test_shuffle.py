"""Linear ShuffleNet: against the published layers, against brute force, and the nearest group count."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from understudy.layers import Conv, Execution
from understudy.layers.geometry import Geometry
from understudy.transforms.shuffle import Shuffle

SHAPES = ((12, 12, 3), (24, 48, 6), (48, 24, 2), (7, 5, 1), (16, 64, 8), (32, 32, 1))
features = st.integers(1, 200)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def published_layers(shuffle: Shuffle) -> nn.Sequential:
    """A grouped 1×1 convolution, a channel shuffle and a grouped 1×1 convolution, with the same weights."""
    groups, middle, width = shuffle.first.shape
    hidden = groups * middle
    first = nn.Conv2d(groups * width, hidden, 1, groups=groups, bias=False, dtype=torch.float64)
    second = nn.Conv2d(hidden, shuffle.out_features, 1, groups=groups, bias=False, dtype=torch.float64)
    with torch.no_grad():
        first.weight.copy_(shuffle.first.reshape(first.weight.shape))
        second.weight.copy_(shuffle.second.reshape(second.weight.shape))
    return nn.Sequential(first, nn.ChannelShuffle(groups), second)


@pytest.mark.parametrize(("in_features", "out_features", "groups"), SHAPES)
def test_shuffle_equals_two_grouped_convolutions_with_a_channel_shuffle(
    in_features: int, out_features: int, groups: int
) -> None:
    shuffle = Shuffle(in_features, out_features, groups, dtype=torch.float64)
    images = normal(2, in_features, 3, 5)
    expected = published_layers(shuffle)(images)
    state = shuffle.prepare("B1,P,B2")
    torch.testing.assert_close(shuffle.apply_rows(state, images.movedim(1, -1)).movedim(-1, 1), expected)
    columns = shuffle.apply_columns(state, images.flatten(2))
    torch.testing.assert_close(columns.reshape(expected.shape), expected)
    torch.testing.assert_close(torch.einsum("oi,bihw->bohw", shuffle.matrix(), images), expected)


@pytest.mark.parametrize(("in_features", "out_features", "groups"), SHAPES)
def test_channels_last_and_contiguous_images_agree(in_features: int, out_features: int, groups: int) -> None:
    shuffle = Shuffle(in_features, out_features, groups, dtype=torch.float64)
    layer = Conv(shuffle, Geometry.pointwise(2))
    layer.execution = Execution(order="B1,P,B2")
    results = []
    for layout in (torch.contiguous_format, torch.channels_last):
        images = normal(2, in_features, 3, 5).contiguous(memory_format=layout).requires_grad_()
        y = layer(images)
        (gradient,) = torch.autograd.grad((y * normal(*y.shape, seed=1)).sum(), images)
        results.append((y, gradient))
    torch.testing.assert_close(results[0], results[1])


@given(features, features)
@settings(deadline=None)
def test_parameters_and_mult_adds_follow_the_published_formula(in_features: int, out_features: int) -> None:
    hidden = max(1, out_features // 4)
    for groups in Shuffle.knobs(in_features, out_features):
        formula = in_features * hidden // groups + hidden * out_features // groups
        assert (in_features * hidden) % groups == (hidden * out_features) % groups == 0
        assert Shuffle.params(in_features, out_features, groups) == formula
        assert Shuffle.mult_adds(in_features, out_features, groups) == formula
        assert Shuffle.mult_adds(in_features, out_features, groups, 7) == 7 * formula


@given(features, features)
@settings(deadline=None)
def test_legal_groups_are_those_that_divide_all_three_widths(in_features: int, out_features: int) -> None:
    hidden = max(1, out_features // 4)
    dividing = [
        groups
        for groups in range(1, in_features + 1)
        if in_features % groups == out_features % groups == hidden % groups == 0
    ]
    assert list(Shuffle.knobs(in_features, out_features)) == dividing[::-1]


@given(features, features, st.integers(1, 60))
@settings(deadline=None)
def test_nearest_knob_is_legal_and_nearest_and_the_cheaper_of_two(
    in_features: int, out_features: int, asked: int
) -> None:
    legal = Shuffle.knobs(in_features, out_features)
    nearest = Shuffle.nearest_knob(in_features, out_features, asked)
    distance = abs(nearest - asked)
    assert nearest in legal
    assert all(abs(groups - asked) >= distance for groups in legal)
    assert nearest == max(groups for groups in legal if abs(groups - asked) == distance)


@pytest.mark.parametrize("asked", [0, -1, 2.0, True, "2", None])
def test_nearest_knob_refuses_what_is_not_a_count(asked: object) -> None:
    with pytest.raises(ValueError, match="not a whole number of at least 1"):
        Shuffle.nearest_knob(12, 12, asked)  # type: ignore[arg-type]


def descended_error(in_features: int, out_features: int, groups: int, target: Tensor, seed: int) -> float:
    """Brute force: quasi-Newton on all parameters from one random start."""
    shuffle = Shuffle(in_features, out_features, groups, seed=seed, dtype=torch.float64)
    optimiser = torch.optim.LBFGS(
        shuffle.parameters(),
        max_iter=300,
        tolerance_grad=1e-12,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        optimiser.zero_grad()
        loss = (shuffle.matrix() - target).square().sum()
        loss.backward()
        return float(loss.detach())

    optimiser.step(closure)
    return closure()


@pytest.mark.parametrize(
    ("in_features", "out_features", "groups"), [(4, 8, 2), (4, 16, 2), (6, 12, 3), (5, 9, 1)]
)
def test_projection_is_as_near_as_brute_force_gets(in_features: int, out_features: int, groups: int) -> None:
    target = normal(out_features, in_features, seed=5)
    shuffle = Shuffle(in_features, out_features, groups, dtype=torch.float64)
    shuffle.project_(target)
    error = float((shuffle.matrix().detach() - target).square().sum())
    descended = min(descended_error(in_features, out_features, groups, target, seed) for seed in range(4))
    assert error == pytest.approx(descended, rel=1e-5)


def test_projection_recovers_a_matrix_of_its_own_block_structure() -> None:
    for in_features, out_features, groups in SHAPES:
        target = Shuffle(in_features, out_features, groups, seed=1, dtype=torch.float64).matrix().detach()
        shuffle = Shuffle(in_features, out_features, groups, seed=2, dtype=torch.float64)
        shuffle.project_(target)
        torch.testing.assert_close(shuffle.matrix(), target)


def test_every_block_of_the_matrix_has_the_rank_of_the_channels_that_join_it() -> None:
    in_features, out_features, groups = 16, 64, 4  # 16 hidden channels, one for each pair of groups
    matrix = Shuffle(in_features, out_features, groups, dtype=torch.float64).matrix().detach()
    blocks = matrix.reshape(groups, out_features // groups, groups, in_features // groups)
    for k, i in itertools.product(range(groups), repeat=2):
        assert int(torch.linalg.matrix_rank(blocks[k, :, i])) == 1
