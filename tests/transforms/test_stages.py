"""Stages: each is the matrix it states, in both layouts."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad
from torch.profiler import ProfilerActivity, profile

from understudy.transforms import stages
from understudy.transforms.stages import Blocks, Permute, Product, Stage, by_blocks, few_rows, is_plain


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def eye(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WEIGHT, BLOCKS = normal(3, 5), normal(4, 2, 3)


@pytest.mark.parametrize(
    ("stage", "matrix"),
    [
        (Product(WEIGHT), WEIGHT),
        (Product(WEIGHT, left=2), torch.kron(eye(2), WEIGHT)),
        (Product(WEIGHT, right=4), torch.kron(WEIGHT, eye(4))),
        (Product(WEIGHT, left=2, right=4), torch.kron(torch.kron(eye(2), WEIGHT), eye(4))),
        (Blocks(BLOCKS), torch.block_diag(*BLOCKS)),
        (Permute((2, 3), (1, 0)), eye(6)[[0, 3, 1, 4, 2, 5]]),
        (Permute((2, 2, 2), (2, 0, 1)), eye(8)[[0, 2, 4, 6, 1, 3, 5, 7]]),
    ],
    ids=["plain", "left", "right", "both", "blocks", "riffle", "three axes"],
)
def test_a_stage_is_its_matrix_on_rows_and_on_columns(stage: Stage, matrix: Tensor) -> None:
    x = normal(7, matrix.shape[1])
    torch.testing.assert_close(stage.rows(x), x @ matrix.T)
    columns = normal(2, matrix.shape[1], 7)
    torch.testing.assert_close(stage.columns(columns), matrix @ columns)


@given(st.integers(0, 40), st.integers(1, 6), st.integers(1, 6), st.sampled_from(TYPES))
def test_two_axes_change_places_in_inference_as_in_training(
    count: int, before: int, after: int, dtype: torch.dtype
) -> None:
    x, stage = normal(count, before * after).to(dtype), Permute((before, after), (1, 0))
    wanted = stage.rows(x)
    with torch.inference_mode():
        made = stage.rows(x)
    assert torch.equal(made, wanted)
    assert made.shape == (count, before * after)
    assert made.is_contiguous()


def test_many_vectors_change_places_in_a_call_of_their_own_in_inference() -> None:
    def calls(count: int, *sizes: int) -> set[str]:
        x = normal(count, sizes[0] * sizes[1])
        with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as seen:
            Permute((sizes[0], sizes[1]), (1, 0)).rows(x)
        return {event.key for event in seen.key_averages() if "shuffle" in event.key}

    assert "aten::native_channel_shuffle" in calls(32, 4, 5)
    assert not calls(2, 4, 5)
    assert not calls(32, 1, 20), "there is nothing to move"


@pytest.mark.parametrize(("sizes", "is_gathered"), [((5, 4), True), ((3, 7), True), ((4, 5), False)])
def test_more_vectors_than_a_cache_holds_are_gathered_where_shuffling_is_slow(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int], is_gathered: bool
) -> None:
    monkeypatch.setattr(stages, "_CACHED", 0)
    x, stage = normal(40, math.prod(sizes)), Permute(sizes, (1, 0))
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as seen, torch.device("meta"):
        made = stage.rows(x)
    assert torch.equal(made, stage.rows(x))
    assert is_gathered == ("aten::gather" in {event.key for event in seen.key_averages()})


def test_only_one_matrix_over_all_channels_is_plain() -> None:
    assert is_plain(Product(WEIGHT))
    others = (Product(WEIGHT, left=2), Product(WEIGHT, right=2), Blocks(BLOCKS), Permute((2, 3), (1, 0)))
    assert not any(is_plain(stage) for stage in others)


@pytest.mark.parametrize("training", [False, True])
def test_few_and_many_vectors_in_rows_meet_the_same_blocks(training: bool) -> None:
    few = few_rows(training=training)
    for count in (0, 1, few, few + 1):
        x, weight = normal(count, 12).requires_grad_(), BLOCKS.clone().requires_grad_()
        dense = torch.block_diag(*BLOCKS)
        with torch.set_grad_enabled(training):
            out = Blocks(weight).rows(x)
        torch.testing.assert_close(out, x @ dense.T)
        if training:
            out.backward(wanted := normal(count, 8))
            torch.testing.assert_close(x.grad, wanted @ dense)
            whole = (wanted.T @ x).detach().reshape(4, 2, 4, 3)
            torch.testing.assert_close(weight.grad, whole[range(4), :, range(4)])


WIDE = torch.randn(3, 90, 40, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


@pytest.mark.parametrize("blocks", [WIDE, WIDE.mT], ids=["more rows", "more columns"])
@pytest.mark.parametrize("count", [0, 1, 5, few_rows(training=True) + 1])
def test_wide_blocks_are_trained_by_products_alone(blocks: Tensor, count: int) -> None:
    x, weight = normal(count, blocks[:, 0].numel()).requires_grad_(), blocks.clone().requires_grad_()
    dense = torch.block_diag(*blocks)
    out = Blocks(weight).rows(x)
    assert "ByBlocks" in type(out.grad_fn).__name__
    torch.testing.assert_close(out, x @ dense.T)
    out.backward(wanted := normal(count, len(dense)))
    torch.testing.assert_close(x.grad, wanted @ dense)
    parts = [w.T @ s for w, s in zip(wanted.chunk(3, 1), x.detach().chunk(3, 1), strict=True)]
    torch.testing.assert_close(weight.grad, torch.stack(parts))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, in forward mode
def test_wide_blocks_have_every_derivative() -> None:
    x, weight = normal(2, 120).requires_grad_(), WIDE.clone().requires_grad_()
    assert torch.autograd.gradcheck(by_blocks, (x, weight), fast_mode=True)
    assert torch.autograd.gradgradcheck(by_blocks, (x, weight), fast_mode=True)
    with forward_ad.dual_level():
        pair = forward_ad.make_dual(x, x), forward_ad.make_dual(weight, weight)
        for given in (pair, (pair[0], weight), (x, pair[1])):
            made = forward_ad.unpack_dual(by_blocks(*given))
            times = sum(value is not plain for value, plain in zip(given, (x, weight), strict=True))
            torch.testing.assert_close(made.tangent, times * made.primal)
    by_blocks(x, WIDE).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(2, 270, dtype=x.dtype) @ torch.block_diag(*WIDE))
    by_blocks(x.detach(), weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("count", [1, 7, 1025])
def test_blocks_write_where_they_belong_and_give_the_same(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    stage = Blocks(torch.randn(3, 5, 4, generator=generator))
    x = torch.randn(count, 12, generator=generator)
    asked = x @ torch.block_diag(*stage.weight).T
    with torch.no_grad():
        found = stage.rows(x)
        mapped = torch.func.vmap(stage.rows)(x.expand(2, -1, -1))
        with torch.autocast("cpu", torch.bfloat16):
            brief = stage.rows(x)
        shape = Blocks(stage.weight.to("meta")).rows(x.to("meta")).shape
    assert found.is_contiguous()
    for one in (found, *mapped, stage.rows(x)):
        assert torch.allclose(one, asked, atol=1e-5)
    assert brief.dtype == torch.bfloat16
    assert shape == found.shape
