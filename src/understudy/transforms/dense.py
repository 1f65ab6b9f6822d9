"""The control: a plain matrix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Shapes, Transform
from .orders import Order


class Dense(Transform):
    """W itself, every entry free.

    Cost: in · out parameters and as many mult-adds a vector.
    """

    name = "dense"
    knob_name = "dense"
    weight: nn.Parameter

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:  # noqa: ARG003
        """There is one dense matrix of a shape."""
        return range(1, 2)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:  # noqa: ARG003
        """Every scale is the same matrix."""
        return 1

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:  # noqa: ARG003
        """One matrix."""
        return {"weight": (out_features, in_features)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:  # noqa: ARG003
        """The matrix is all there is."""
        return ()

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """Nothing to form."""
        return 0

    def matrix(self) -> Tensor:
        """The parameter itself."""
        return self.weight

    def entry_std(self, std: float) -> float:
        """As asked."""
        return std

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """Copy the matrix."""
        self.weight.copy_(matrix)
