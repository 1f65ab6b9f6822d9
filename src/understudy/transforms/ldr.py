"""Low displacement rank with learned subdiagonal operators (Thomas et al. 2018, arXiv:1810.02309)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Shapes
from .numerics import balance_
from .orders import Order
from .stages import Scale, State
from .toeplitz_like import ToeplitzLike


class Ldr(ToeplitzLike):
    """W = D T E, T Toeplitz-like of displacement rank r, D and E diagonal: A W − W B has rank r.

    Cost: 2·N·r + in + out parameters; in + out mult-adds a vector more than Toeplitz-like.

    A = D Z₁ D⁻¹ and B = E⁻¹ Z₋₁ E are the operators: all that is not zero in them lies below the diagonal and
    in a corner, and any such entries whose product is 1 and −1 are so made. Written as operators W is a
    polynomial of degree N in them; written with D and E it is linear in each of its four parameters.
    """

    name = "ldr"
    row: nn.Parameter  # the diagonal of D, (out,)
    column: nn.Parameter  # the diagonal of E, (in,)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The first columns of both factors of T, then the two diagonals."""
        diagonals = {"row": (out_features,), "column": (in_features,)}
        return super().shapes(in_features, out_features, knob) | diagonals

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """As Toeplitz-like, between the diagonals."""
        (order,) = super().orders(in_features, out_features, knob)
        return (order._replace(per_vector=order.per_vector + in_features + out_features),)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """T, then its rows and columns scaled."""
        return super().forming_mult_adds(in_features, out_features, knob) + 2 * in_features * out_features

    def stages(self, order: str) -> State:
        """E, T, D."""
        return Scale(self.column), *super().stages(order), Scale(self.row)

    def matrix(self) -> Tensor:
        """T with its rows and columns scaled."""
        return self.row[:, None] * super().matrix() * self.column

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of r·N products of four entries."""
        return float((std**2 / self.g.numel()) ** 0.125)

    def sample(self, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
        """Random signs on the diagonals: no channel begins fainter than another."""
        if len(shape) > 1:
            return super().sample(shape, std, generator)
        signs = 2 * torch.randint(0, 2, shape, generator=generator, device="cpu") - 1
        return signs * self.entry_std(std)

    def _start_(self, target: Tensor) -> None:
        """From Toeplitz-like: diagonals of ones."""
        super()._start_(target)
        self.row.fill_(1)
        self.column.fill_(1)
        balance_(self.g, self.h, self.row, self.column)
