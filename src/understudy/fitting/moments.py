"""Running first and second moments of vectors, and of a target beside them, in float64."""

from __future__ import annotations

import torch
from torch import Tensor


class Moments:
    """Σ x, Σ x xᵀ and, where there is a target t, Σ t, Σ t xᵀ, Σ t²; products in float32, sums in float64."""

    def __init__(self, in_features: int, out_features: int = 0) -> None:
        self.count = 0
        self._x = torch.zeros(in_features, dtype=torch.float64)
        self._xx = torch.zeros(in_features, in_features, dtype=torch.float64)
        self._t = torch.zeros(out_features, dtype=torch.float64)
        self._tx = torch.zeros(out_features, in_features, dtype=torch.float64)
        self._tt = torch.zeros(out_features, dtype=torch.float64)

    def add(self, x: Tensor, target: Tensor | None = None) -> None:
        """Vectors (n, in) and targets (n, out), some ten thousand a call: products are taken in float32."""
        x = x.detach().float()
        self.count += len(x)
        self._x += x.sum(0, dtype=torch.float64).cpu()
        self._xx += (x.T @ x).double().cpu()
        if target is not None:
            target = target.detach().float()
            self._t += target.sum(0, dtype=torch.float64).cpu()
            self._tx += (target.T @ x).double().cpu()
            self._tt += target.square().sum(0, dtype=torch.float64).cpu()

    @property
    def mean(self) -> Tensor:
        """x̄."""
        return self._x / max(1, self.count)

    @property
    def covariance(self) -> Tensor:
        """E[x xᵀ] − x̄ x̄ᵀ."""
        return self.second - torch.outer(self.mean, self.mean)

    @property
    def second(self) -> Tensor:
        """E[x xᵀ]."""
        return self._xx / max(1, self.count)

    @property
    def second_cross(self) -> Tensor:
        """E[t xᵀ], out × in."""
        return self._tx / max(1, self.count)

    @property
    def target_mean(self) -> Tensor:
        """t̄."""
        return self._t / max(1, self.count)

    @property
    def cross(self) -> Tensor:
        """E[t xᵀ] − t̄ x̄ᵀ, out × in."""
        return self.second_cross - torch.outer(self.target_mean, self.mean)

    @property
    def target_variance(self) -> Tensor:
        """E[t²] − t̄², of each output."""
        return (self._tt / max(1, self.count) - self.target_mean.square()).clamp(min=0)

    def is_finite(self) -> bool:
        """Whether no vector held NaN or infinity."""
        return bool(self._x.isfinite().all() and self._xx.isfinite().all())
