"""A transform of one's own, outside the package: k rows that all outputs share.

Run this file to see it planned and substituted by name. To have every command know it, install a package with
the entry point

    [project.entry-points."understudy.transforms"]
    shared_rows = "shared_rows:SharedRows"
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import understudy as us
from understudy.transforms.base import Shapes
from understudy.transforms.numerics import clamp_knob
from understudy.transforms.orders import Order


class SharedRows(us.Transform):
    """W[i] = R[i mod k]: k distinct rows.

    Cost: k · in parameters, in · out mult-adds a vector.
    """

    name = "shared_rows"
    knob_name = "rows"
    rows: nn.Parameter  # R, (k, in)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:  # noqa: ARG003
        """From one row for all to one for each output."""
        return range(1, out_features + 1)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """A share of the outputs."""
        return clamp_knob(scale * out_features, cls.knobs(in_features, out_features))

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:  # noqa: ARG003
        """The rows."""
        return {"rows": (knob, in_features)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:  # noqa: ARG003
        """There is no other way than the matrix."""
        return ()

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """Copying multiplies nothing."""
        return 0

    def matrix(self) -> Tensor:
        """The rows, again and again."""
        return self.rows[torch.arange(self.out_features, device=self.rows.device) % self.knob]

    def entry_std(self, std: float) -> float:
        """Every entry of W is one of R."""
        return std

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The mean of the rows that share one: least squares."""
        for row in range(self.knob):
            self.rows[row] = matrix[row :: self.knob].mean(0)


def main() -> None:
    """Plan, substitute and count with the new name."""
    us.register_transform(SharedRows)
    model = us.create_model("wrn_16_2")
    plan = us.plan(model, "shared_rows", ratio=0.3, example=(1, 3, 32, 32))
    student = us.substitute(model, plan)
    print(plan.summary())
    print(repr(us.cost(student, (1, 3, 32, 32))))


if __name__ == "__main__":
    main()
