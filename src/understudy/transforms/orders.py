"""The orders in which a transform can be contracted, and which of them is the cheapest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

FORMED = "formed"  # the order that every transform has: form W, then one matrix product

# So many vectors that whatever is done once a call vanishes beside them.
MANY_BITS = 60


class Order(NamedTuple):
    """One way to run a transform, named by the factors in the order in which they meet the input.

    >>> Order("V,U", per_call=0, per_vector=512).mult_adds(positions=10)
    5120
    """

    name: str
    per_call: int  # mult-adds that do not depend on the input: products of factors
    per_vector: int  # mult-adds for each input vector
    whole: bool = False  # its first stage is one matrix over all channels: a convolution can run its kernel
    run: int = 0  # neighbouring channels that a matrix of its first stage reads, where it is several

    def mult_adds(self, positions: int) -> int:
        """Of one call on so many vectors."""
        return self.per_call + positions * self.per_vector

    def convolves(self, area: int) -> bool:
        """Whether its first stage can be a convolution of so many taps: it parts those of no channel."""
        return self.whole or (self.run > 0 and self.run % area == 0)


def cheapest(orders: Sequence[Order], positions: int) -> Order:
    """The order with the fewest mult-adds for so many vectors, the first of those that tie.

    A plain loop: torch.compile cannot trace min(key=…) over a symbolic number of vectors.
    """
    best = orders[0]
    for order in orders:
        if order.mult_adds(positions) < best.mult_adds(positions):
            best = order
    return best


def convolving(orders: Sequence[Order], area: int) -> Sequence[Order]:
    """The orders that a convolution of so many taps can run without unfolding patches; "formed" always is."""
    return orders if area == 1 else [order for order in orders if order.convolves(area)]


def known_positions(positions: int) -> int:
    """How many vectors to decide for: in an exported graph the batch may be symbolic, so very many."""
    return 1 << MANY_BITS if torch.compiler.is_exporting() else positions
