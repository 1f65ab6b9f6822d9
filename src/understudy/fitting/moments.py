"""Running first and second moments of vectors, and of a target beside them, in float64."""

from __future__ import annotations

import torch
from torch import Tensor


class Moments:
    """x̄, Σ = E[(x − x̄)(x − x̄)ᵀ] and, where there is a target t, t̄ and E[(t − t̄)(x − x̄)ᵀ].

    Products are taken in float32 and summed in float64, all of them about the mean of the first vectors: what
    is small beside a large mean is not lost in rounding.
    """

    def __init__(self, in_features: int, out_features: int = 0) -> None:
        self.count = 0
        self._origin: tuple[Tensor, Tensor] | None = None  # of x and t, float32, on the device of the vectors
        self._x = torch.zeros(in_features, dtype=torch.float64)
        self._xx = torch.zeros(in_features, in_features, dtype=torch.float64)
        self._t = torch.zeros(out_features, dtype=torch.float64)
        self._tx = torch.zeros(out_features, in_features, dtype=torch.float64)

    def add(self, x: Tensor, target: Tensor | None = None) -> None:
        """Vectors (n, in) and targets (n, out), some ten thousand a call."""
        if not len(x):
            return
        x = x.detach().float()
        t = x.new_zeros(len(x), 0) if target is None else target.detach().float()
        if self._origin is None:
            self._origin = x.mean(0), t.mean(0)
        x, t = x - self._origin[0], t - self._origin[1]
        self.count += len(x)
        self._x += x.sum(0, dtype=torch.float64).cpu()
        self._xx += (x.T @ x).double().cpu()
        self._t += t.sum(0, dtype=torch.float64).cpu()
        self._tx += (t.T @ x).double().cpu()

    def _moved(self, total: Tensor, which: int) -> Tensor:
        """A mean from a sum about the origin."""
        origin = 0 if self._origin is None else self._origin[which].double().cpu()
        return total / max(1, self.count) + origin

    @property
    def mean(self) -> Tensor:
        """x̄."""
        return self._moved(self._x, 0)

    @property
    def target_mean(self) -> Tensor:
        """t̄."""
        return self._moved(self._t, 1)

    @property
    def covariance(self) -> Tensor:
        """Σ."""
        count = max(1, self.count)
        return self._xx / count - torch.outer(self._x, self._x) / count**2

    @property
    def cross(self) -> Tensor:
        """E[(t − t̄)(x − x̄)ᵀ], out × in."""
        count = max(1, self.count)
        return self._tx / count - torch.outer(self._t, self._x) / count**2

    @property
    def second(self) -> Tensor:
        """E[x xᵀ]."""
        return self.covariance + torch.outer(self.mean, self.mean)

    @property
    def second_cross(self) -> Tensor:
        """E[t xᵀ], out × in."""
        return self.cross + torch.outer(self.target_mean, self.mean)

    def is_finite(self) -> bool:
        """Whether no vector held NaN or infinity."""
        return bool(self._x.isfinite().all() and self._xx.isfinite().all())
