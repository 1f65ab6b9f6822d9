"""Block tensor-train of two cores: blocks, each of a low rank (Qiu et al. 2024, arXiv:2406.06248).

With rank 1 it is a Monarch matrix (Dao et al. 2022, arXiv:2204.00595), up to a fixed order of the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Shapes
from .canonical import canonical
from .metric import Metric
from .numerics import block_counts, truncated_svd
from .orders import Order
from .refine import refine_
from .stages import Blocks, Permute, Product, State
from .two_factors import TwoFactors


class Btt(TwoFactors):
    """W[(m,j),(k,i)] = Σ over r of L[m,j,k,r] R[k,m,r,i]: m × k blocks, each of rank r.

    Cost: r (m·in + k·out) parameters and as many mult-adds a vector; k ≈ √in, m ≈ √out.

    A width that is prime is one block: where both are, this is a matrix of low rank.
    """

    name = "btt"
    knob_name = "rank"
    has_rank = True
    keeps_much = True  # the vectors between the cores are wider than the input
    is_closed_inside = True
    first: nn.Parameter  # R, (k, m·r, i)
    second: nn.Parameter  # L, (m, j, k·r)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Every rank that a block can have."""
        k, m = block_counts(in_features, out_features)
        return range(1, min(in_features // k, out_features // m) + 1)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The two cores as grouped matrices."""
        k, m = block_counts(in_features, out_features)
        return {"first": (k, m * knob, in_features // k), "second": (m, out_features // m, k * knob)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Two grouped products."""
        k, m = block_counts(in_features, out_features)
        return (Order("R,P,L", 0, knob * (m * in_features + k * out_features), whole=k == 1),)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Every block is a product of rank r."""
        return knob * in_features * out_features

    def stages(self, order: str) -> State:  # noqa: ARG002
        """R on blocks of the input, then what goes to each block of the output side by side, then L."""
        k, m = len(self.first), len(self.second)
        first = Product(self.first[0]) if k == 1 else Blocks(self.first)
        second = Product(self.second[0]) if m == 1 else Blocks(self.second)
        return (first, second) if 1 in (k, m) else (first, Permute((k, m, self.knob), (1, 0, 2)), second)

    def _factors(self) -> tuple[Tensor, Tensor]:
        """The two factors of every block: (m, k, j, r) and (m, k, r, i)."""
        k, m, r = len(self.first), len(self.second), self.knob
        left = self.second.reshape(m, -1, k, r).transpose(1, 2)
        return left, self.first.reshape(k, m, r, -1).transpose(0, 1)

    def matrix(self) -> Tensor:
        """The blocks, put in their places."""
        left, right = self._factors()
        return (left @ right).transpose(1, 2).reshape(self.out_features, -1)

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of r products of two entries."""
        return float((std**2 / self.knob) ** 0.25)

    def _blocks(self, matrix: Tensor) -> Tensor:
        """`matrix` as its blocks, (m, k, j, i)."""
        k, m = len(self.first), len(self.second)
        return matrix.reshape(m, -1, k, self.first.shape[2]).transpose(1, 2)

    def _set_(self, left: Tensor, right: Tensor) -> None:
        self.second.copy_(left.transpose(1, 2).reshape(self.second.shape))
        self.first.copy_(right.transpose(0, 1).reshape(self.first.shape))

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The truncated singular value decomposition of every block: the nearest matrix of the family."""
        self._set_(*truncated_svd(self._blocks(matrix), self.knob))

    @torch.no_grad()
    def project_inside_(self, kernel: Tensor) -> Tensor:
        """Every block of the kernel as r terms u ⊗ v ⊗ taps."""
        k, m = len(self.first), len(self.second)
        blocks = kernel.reshape(m, -1, k, self.first.shape[2], kernel.shape[2]).transpose(1, 2)
        left, right, taps = canonical(blocks, self.knob)
        self._set_(left, right)
        return taps.transpose(0, 1).reshape(-1, kernel.shape[2])

    @torch.no_grad()
    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        """Each block cut in the metric of its own inputs and outputs, where that is nearer; then refined."""
        self.project_(matrix)
        if metric is None:
            return
        plain = float(metric.loss(self.matrix() - matrix))
        kept = self.first.clone(), self.second.clone()
        k, m = len(self.first), len(self.second)
        inside = torch.linalg.cholesky(_diagonal_blocks(metric.covariance, k))  # (k, i, i)
        white = self._blocks(matrix.double()) @ inside
        if metric.gradient is not None:
            outside = torch.linalg.cholesky(_diagonal_blocks(metric.gradient, m))[:, None].mT  # (m, 1, j, j)
            white = outside @ white
        left, right = truncated_svd(white, self.knob)
        if metric.gradient is not None:
            left = torch.linalg.solve_triangular(outside, left, upper=True)
        self._set_(left, torch.linalg.solve_triangular(inside, right, upper=False, left=False))
        if not float(metric.loss(self.matrix() - matrix)) < plain:
            self.first.copy_(kept[0])
            self.second.copy_(kept[1])
        refine_(self, self.matrix, matrix, metric)


def _diagonal_blocks(moment: Tensor, count: int) -> Tensor:
    """The square blocks on the diagonal, (count, size, size)."""
    size = len(moment) // count
    places = torch.arange(count, device=moment.device)
    return moment.reshape(count, size, count, size)[places, :, places]
