"""How much an error of a matrix matters: ‖E‖² = tr(G E Σ Eᵀ), Σ of what comes in, G of what goes out."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

_RIDGE = 1e-4  # of the mean eigenvalue: directions that the data do not show still count a little
_OUT_RIDGE = 0.3  # a gradient tells of small errors: where it sees nothing, large ones still do harm
_ROUNDING = 1e-6  # of the whole: what products in single precision may have taken from an eigenvalue
_WORTHLESS = 1e-12  # of outputs that do not reach the network's
_LEADING = 16  # one of so many directions of Σ is told apart


class Leading(NamedTuple):
    """Σ ≈ U (diag(above) + rest) Uᵀ + rest (1 − U Uᵀ)."""

    basis: Tensor  # U, (in, k)
    above: Tensor  # (k,)
    rest: float


@dataclasses.dataclass(frozen=True)
class Metric:
    """The metric of a layer's inputs, and of what its outputs are worth; without G all are worth the same."""

    covariance: Tensor  # Σ, (in, in), float64, positive definite
    gradient: Tensor | None = None  # G, (out, out), float64, positive definite

    @classmethod
    def of(cls, covariance: Tensor, gradient: Tensor | None = None, *, ridge: float = _RIDGE) -> Metric:
        """A metric from second moments as they were measured, made positive definite."""
        out = None if gradient is None else _raised(gradient, _OUT_RIDGE, floor=_WORTHLESS)
        return cls(_raised(covariance, ridge), out)

    def loss(self, error: Tensor) -> Tensor:
        """tr(G E Σ Eᵀ); gradients flow through it."""
        error = error.double()
        weighted = error @ self.covariance
        if self.gradient is not None:
            weighted = self.gradient @ weighted
        return (weighted * error).sum()

    @cached_property
    def in_root(self) -> Tensor:
        """L, lower triangular, with L Lᵀ = Σ."""
        root: Tensor = torch.linalg.cholesky(self.covariance)
        return root

    @cached_property
    def out_root(self) -> Tensor | None:
        """D, upper triangular, with Dᵀ D = G."""
        return None if self.gradient is None else torch.linalg.cholesky(self.gradient).mT

    @cached_property
    def leading(self) -> Leading:
        """The directions that the inputs fill most, found by a random start and two products with Σ."""
        sigma = self.covariance.float()
        size, count = len(sigma), -(-len(sigma) // _LEADING)
        basis = torch.randn(size, count, generator=torch.Generator().manual_seed(0)).to(sigma)
        for _ in range(2):
            basis = torch.linalg.qr(sigma @ basis).Q
        values, turn = torch.linalg.eigh(basis.T @ sigma @ basis)
        rest = max(0.0, float(sigma.diagonal().sum() - values.sum())) / (size - count)
        return Leading(basis @ turn, values - rest, rest)

    def whiten(self, matrix: Tensor) -> Tensor:
        """D W L, in which the metric is the plain norm."""
        white = matrix.double() @ self.in_root
        return white if self.out_root is None else self.out_root @ white

    def whitened_in(self, rows: Tensor) -> Tensor:
        """Rows of a right factor taken back: V L⁻¹."""
        back: Tensor = torch.linalg.solve_triangular(self.in_root, rows, upper=False, left=False)
        return back

    def whitened_out(self, columns: Tensor) -> Tensor:
        """Columns of a left factor taken back: D⁻¹ U."""
        if self.out_root is None:
            return columns
        back: Tensor = torch.linalg.solve_triangular(self.out_root, columns, upper=True)
        return back


def _raised(moment: Tensor, ridge: float, floor: float = 1.0) -> Tensor:
    """A second moment with a share of its mean eigenvalue added to all; one of nothing is `floor` · I.

    Few vectors, or nearly the same ones, leave most eigenvalues at nothing, and rounding takes them below it.
    """
    moment = moment.double()
    mean = float(moment.diagonal().mean())
    eye = torch.eye(len(moment), dtype=torch.float64, device=moment.device)
    if mean <= 0:
        return floor * eye
    return moment + max(ridge * mean, _ROUNDING * float(moment.norm())) * eye
