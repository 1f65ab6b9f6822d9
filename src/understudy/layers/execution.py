"""How a layer runs: in which order and layout, and what it keeps for the backward pass."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

from torch import Tensor

from understudy.transforms import Transform
from understudy.transforms.orders import Order, convolving, known_positions
from understudy.transforms.stages import State

from .pace import quickest

Layout = Literal["auto", "rows", "columns"]
AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class Execution:
    """A choice for one layer; what is left at "auto" and None is chosen by cost at every call.

    `order` is one of the transform's, as `transform.legal_orders` lists them; "auto" takes the one with the
    fewest mult-adds for the number of vectors at hand, of those that unfold no patches of a convolution, and
    where what does not depend on the input is kept between calls, the one that takes the least time.
    `layout` says whether vectors are the rows or the columns of the products; "auto" follows the memory of
    the input. With `recompute`, training keeps no more than a dense layer would, the input: what lies between
    input and output is computed again in the backward pass; None does so where a layer would keep much.
    `inference` is the order in evaluation without gradients where that is another one, as `tune` finds it.

    >>> Execution(order="formed", recompute=False)
    Execution(order='formed', recompute=False)
    """

    order: str = AUTO
    layout: Layout = "auto"
    recompute: bool | None = None
    inference: str | None = None

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise ValueError(f"layout {self.layout!r} is not one of {', '.join(get_args(Layout))}")
        if self.recompute not in (None, True, False):
            raise ValueError(f"recompute {self.recompute!r} is not one of None, True, False")

    def __repr__(self) -> str:
        changed = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        return f"Execution({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def check(self, transform: Transform) -> None:
        """Raise ValueError, naming the legal orders, unless the transform can run so."""
        for order in (self.order, self.in_inference):
            if order != AUTO:
                transform.legal_order(order)

    @property
    def in_inference(self) -> str:
        """The order in evaluation without gradients."""
        return self.order if self.inference is None else self.inference

    def choose(
        self,
        transform: Transform,
        positions: int,
        area: int = 1,
        *,
        inference: bool = False,
        kept: bool = False,
        rows: bool = False,
    ) -> Order:
        """The order of a call on so many vectors, which may be patches of `area` taps.

        Where a state is `kept`, making it costs nothing; `rows` says how the vectors lie.
        """
        order = self.in_inference if inference else self.order
        if order == AUTO and kept and positions:
            orders = convolving(transform.legal_orders, area)
            if len(orders) == 1:
                return orders[0]
            shape = transform.in_features, transform.out_features
            return quickest(type(transform), shape, transform.knob, orders, positions, area=area, rows=rows)[
                0
            ]
        if order == AUTO or known_positions(positions) == 0:
            return transform.order_for(positions, area)
        return transform.legal_order(order)

    def apply(self, transform: Transform, state: State, x: Tensor, *, rows: bool) -> Tensor:
        """Run prepared stages on (..., in) if `rows`, else on (batch, in, positions), in this layout."""
        inner = rows if self.layout == AUTO else self.layout == "rows"
        if inner == rows:
            return transform.apply_rows(state, x) if rows else transform.apply_columns(state, x)
        if inner:
            return transform.apply_rows(state, x.mT).mT
        columns = transform.apply_columns(state, x.reshape(1, -1, x.shape[-1]).mT)
        return columns.mT.contiguous().reshape(*x.shape[:-1], transform.out_features)


DEFAULT = Execution()
