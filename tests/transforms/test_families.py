"""The families beyond the paper's: each is the sum its docstring states, and finds what it is made for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import understudy as us
from understudy.counting.trace import trace
from understudy.planning.pricing import Pricing
from understudy.planning.sites import sites
from understudy.students.file import file_size
from understudy.transforms import Transform
from understudy.transforms.blast import Blast
from understudy.transforms.block_circulant import BlockCirculant, block_sizes
from understudy.transforms.btt import Btt
from understudy.transforms.cycles import circulant, circulant_sums
from understudy.transforms.kronecker import Kronecker
from understudy.transforms.ldr import Ldr
from understudy.transforms.low_rank import LowRank
from understudy.transforms.low_rank_sparse import LowRankSparse
from understudy.transforms.metric import Metric
from understudy.transforms.numerics import block_counts
from understudy.transforms.toeplitz_like import ToeplitzLike

close = torch.testing.assert_close


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def error(transform: Transform, target: Tensor) -> float:
    return float((transform.matrix().detach() - target).norm() / target.norm())


def test_btt_is_the_sum_its_docstring_states() -> None:
    made = Btt(24, 18, 2, dtype=torch.float64)
    k, m = block_counts(24, 18)
    left, right = made.second.reshape(m, 18 // m, k, 2), made.first.reshape(k, m, 2, 24 // k)
    close(made.matrix(), torch.einsum("mjkr,kmri->mjki", left, right).reshape(18, 24))


def test_btt_contains_every_monarch_matrix_up_to_the_order_of_the_outputs() -> None:
    inner, outer = normal(4, 4, 4), normal(4, 4, 4, seed=1)  # block-diagonal factors of 16 × 16
    shuffle = torch.arange(16).reshape(4, 4).T.flatten()
    monarch = torch.block_diag(*outer) @ torch.block_diag(*inner)[shuffle]
    made = Btt(16, 16, 1, dtype=torch.float64)
    made.project_(monarch)
    assert error(made, monarch) < 1e-9


def test_btt_in_a_metric_of_independent_blocks_cuts_each_block_best() -> None:
    target, roots = normal(16, 16), normal(4, 4, 4, seed=1)
    metric = Metric.of(torch.block_diag(*(root @ root.T for root in roots)), ridge=0.0)
    made = Btt(16, 16, 1, dtype=torch.float64)
    made.fit_(target, metric)
    blocks = metric.whiten(target).reshape(4, 4, 4, 4).transpose(1, 2)
    dropped = torch.linalg.svdvals(blocks)[..., 1:].square().sum()
    assert float(metric.loss(made.matrix().detach() - target)) == pytest.approx(float(dropped), rel=1e-6)


def test_kronecker_is_a_sum_of_kronecker_products() -> None:
    made = Kronecker(24, 18, 3, dtype=torch.float64)
    close(made.matrix(), sum(torch.kron(made.a[..., t], made.b[t]) for t in range(3)))


def test_a_circulant_is_the_cheapest_block_circulant_and_sums_are_its_adjoint() -> None:
    assert block_sizes(512, 512)[0] == 512
    made = BlockCirculant(12, 12, 12, dtype=torch.float64)
    column = made.c.detach()[0, 0]
    close(made.matrix().detach(), torch.stack([column.roll(j) for j in range(12)], dim=1))
    values, matrix = normal(5, 7), normal(5, 7, 7, seed=1)
    close((circulant(values) * matrix).sum(), (values * circulant_sums(matrix)).sum())


def test_a_plan_for_mult_adds_leaves_out_the_blocks_that_a_smaller_one_undercuts() -> None:
    model = nn.Linear(512, 512, bias=False)
    (site,) = sites(model, (64, 512)).items
    pricing = Pricing(site, BlockCirculant, "pointwise", 0, {})
    costs = [pricing.mult_adds(knob) for knob in BlockCirculant.knobs(512, 512)]
    assert costs != sorted(costs)
    kept = [pricing.mult_adds(knob) for knob in pricing.worthwhile("mult_adds")]
    assert kept == sorted(kept)
    assert min(costs) == kept[0]
    for scale in range(11):
        assert 0 <= pricing.ladder("mult_adds", published=True).rung_at(scale / 10) < len(kept)
    planned = us.plan(model, "block_circulant", mult_adds=kept[3], example=(64, 512))
    assert planned.layers[0].mult_adds == kept[3]
    assert us.plan(model, "block_circulant", params=512).layers[0].params == 512


@given(st.tuples(st.integers(1, 14), st.integers(1, 14)))
def test_toeplitz_like_is_a_sum_of_circulants_times_skew_circulants(shape: tuple[int, int]) -> None:
    made = ToeplitzLike(*shape, ToeplitzLike.knobs(*shape)[-1], dtype=torch.float64)
    width = made.g.shape[1]
    signs = torch.ones(width, width, dtype=torch.float64).tril() * 2 - 1
    whole = sum(circulant(g) @ (signs * circulant(h)) for g, h in zip(made.g, made.h, strict=True))
    assert isinstance(whole, Tensor)
    close(made.matrix(), whole[: shape[1], : shape[0]])


def test_toeplitz_like_of_rank_two_holds_toeplitz_matrices_and_their_inverses() -> None:
    diagonals = normal(31)
    toeplitz = torch.stack([diagonals[16 - row :][:16] for row in range(1, 17)])
    toeplitz = toeplitz + 8 * torch.eye(16, dtype=torch.float64)
    for target in (toeplitz, toeplitz.inverse()):
        made = ToeplitzLike(16, 16, 2, dtype=torch.float64)
        made.project_(target)
        assert error(made, target) < 1e-9


def test_ldr_has_the_displacement_rank_that_its_operators_give_it() -> None:
    made = Ldr(12, 12, 2, dtype=torch.float64)
    shift = torch.eye(12, dtype=torch.float64).roll(1, 0)
    signed = shift.clone()
    signed[0] *= -1
    row, column = made.row.detach(), made.column.detach()
    a = row[:, None] * shift / row
    b = signed * column / column[:, None]
    matrix = made.matrix().detach()
    assert int(torch.linalg.matrix_rank(a @ matrix - matrix @ b, atol=1e-9)) == 2


def test_ldr_finds_scaled_channels_that_toeplitz_like_misses() -> None:
    scaled = (
        torch.logspace(0, 2, 16, dtype=torch.float64)[:, None]
        * ToeplitzLike(16, 16, 1, dtype=torch.float64).matrix().detach()
    )
    plain, learned = ToeplitzLike(16, 16, 1, dtype=torch.float64), Ldr(16, 16, 1, dtype=torch.float64)
    for made in (plain, learned):
        made.project_(scaled)
    assert error(learned, scaled) < 0.5 * error(plain, scaled)


def test_every_block_of_blast_is_what_its_docstring_states() -> None:
    made = Blast(18, 24, 3, dtype=torch.float64)
    assert len(made.u) > 1 < len(made.v)
    blocks = [
        [u @ torch.diag(made.s[:, p, q]) @ v for q, v in enumerate(made.v)] for p, u in enumerate(made.u)
    ]
    close(made.matrix(), torch.cat([torch.cat(row, dim=1) for row in blocks]))


def test_blast_is_nearer_than_the_low_rank_it_starts_from() -> None:
    target = Blast(32, 32, 4, dtype=torch.float64, seed=5).matrix().detach()
    made, low = Blast(32, 32, 4, dtype=torch.float64), LowRank(32, 32, 4, dtype=torch.float64)
    for fitted in (made, low):
        fitted.project_(target)
    assert error(made, target) < 0.8 * error(low, target)


def test_low_rank_sparse_keeps_the_large_entries_that_a_low_rank_misses() -> None:
    target = normal(32, 2) @ normal(2, 32, seed=1)
    rows = torch.arange(32)
    target[rows, (7 * rows + 3) % 32] += 40
    made = LowRankSparse(32, 32, 2, dtype=torch.float64)
    made.project_(target)
    assert error(made, target) < 1e-5
    assert torch.equal(made.index.long(), (7 * rows + 3) % 32)


def test_the_pattern_of_low_rank_sparse_is_saved_in_two_bytes_an_entry() -> None:
    model = nn.Linear(64, 64, bias=False)
    plan = us.plan(model, "low_rank_sparse", knob=8)
    student, low = us.substitute(model, plan), us.substitute(model, us.plan(model, "low_rank", knob=8))
    entries = 64 * 4
    extra = file_size(student) - file_size(low)
    assert entries * 6 <= extra <= entries * 6 + 512  # values and columns, and their names in the header
    other = us.substitute(nn.Linear(64, 64, bias=False), plan, init="fresh")
    other.load_state_dict(student.state_dict())
    close(other(torch.eye(64)), student(torch.eye(64)))


def test_a_product_of_complex_numbers_is_four_mult_adds() -> None:
    class Complex(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            wide = torch.complex(x, x)
            return torch.bmm(wide, wide).real

    assert sum(trace(Complex(), torch.ones(2, 3, 3)).mult_adds.values()) == 4 * 2 * 27
