"""How much an error of a matrix matters: ‖E‖² = tr(G E Σ Eᵀ), Σ of what comes in, G of what goes out."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import torch
from torch import Tensor

_RIDGE = 1e-4  # of the mean eigenvalue: directions that the data do not show still count a little
_OUT_RIDGE = 1e-2


@dataclasses.dataclass(frozen=True)
class Metric:
    """The metric of a layer's inputs, and of what its outputs are worth; without G all are worth the same."""

    covariance: Tensor  # Σ, (in, in), float64, positive definite
    gradient: Tensor | None = None  # G, (out, out), float64, positive definite

    @classmethod
    def of(cls, covariance: Tensor, gradient: Tensor | None = None, *, ridge: float = _RIDGE) -> Metric:
        """A metric from second moments as they were measured, made positive definite."""
        out = None if gradient is None else _raised(gradient, _OUT_RIDGE)
        return cls(_raised(covariance, ridge), out)

    def loss(self, error: Tensor) -> Tensor:
        """tr(G E Σ Eᵀ); gradients flow through it."""
        error = error.double()
        weighted = error @ self.covariance
        if self.gradient is not None:
            weighted = self.gradient @ weighted
        return (weighted * error).sum()

    @cached_property
    def in_roots(self) -> tuple[Tensor, Tensor]:
        """Σ^½ and Σ^-½."""
        return _roots(self.covariance)

    @cached_property
    def out_roots(self) -> tuple[Tensor, Tensor] | None:
        """G^½ and G^-½."""
        return None if self.gradient is None else _roots(self.gradient)

    def whiten(self, matrix: Tensor) -> Tensor:
        """G^½ W Σ^½, in which the metric is the plain norm."""
        white = matrix.double() @ self.in_roots[0]
        return white if self.out_roots is None else self.out_roots[0] @ white

    def blacken(self, matrix: Tensor) -> Tensor:
        """The inverse of `whiten`."""
        black = matrix @ self.in_roots[1]
        return black if self.out_roots is None else self.out_roots[1] @ black


def _raised(moment: Tensor, ridge: float) -> Tensor:
    """A second moment with a share of its mean eigenvalue added to all; one of nothing becomes the identity."""
    moment = moment.double()
    mean = float(moment.diagonal().mean())
    eye = torch.eye(len(moment), dtype=torch.float64, device=moment.device)
    return moment + ridge * mean * eye if mean > 0 else eye


def _roots(moment: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(moment)
    values = values.clamp(min=float(values[-1]) * 1e-12)
    return (vectors * values.sqrt()) @ vectors.T, (vectors * values.rsqrt()) @ vectors.T
