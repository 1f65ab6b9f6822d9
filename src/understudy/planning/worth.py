"""What a plan may be told of a trained network: how much every stand-in for a layer would lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import nn

from understudy.layers.replacement import Way
from understudy.transforms import Transform

from .allocate import Choice
from .pricing import Pricing

_MOST_KNOBS = 24


class Worth(Protocol):
    """Knows what a network's layers see, and so what an error of theirs is worth."""

    def losses(
        self,
        path: str,
        layer: nn.Module,
        transform: type[Transform],
        way: Way,
        knobs: Sequence[int],
        **options: str,
    ) -> list[float]:
        """What a stand-in for the layer at `path` loses at each knob, in one unit for all layers."""


def choices(pricing: Pricing, metric: str, layer: nn.Module, worth: Worth) -> list[Choice]:
    """What one layer may become: the knobs that are worth their price, or enough of them, and as it is."""
    ladder = pricing.ladder(metric, published=False)
    knobs = spread(ladder.knobs, _MOST_KNOBS)
    made = [Choice(ladder.dense, 0.0, way=pricing.way)]
    if knobs:
        losses = worth.losses(
            pricing.site.path, layer, pricing.transform, pricing.way, knobs, **pricing.options
        )
        made += [
            Choice(ladder.cost(knob), loss, pricing.transform.name, pricing.way, knob)
            for knob, loss in zip(knobs, losses, strict=True)
        ]
    return made


def spread(knobs: Sequence[int], most: int) -> list[int]:
    """All knobs, or so many of them, the first and the last among them, in steps that grow evenly."""
    if len(knobs) <= most:
        return list(knobs)
    growth = len(knobs) ** (1 / (most - 1))
    places = {min(len(knobs) - 1, max(step, round(growth**step) - 1)) for step in range(most)}
    return [knobs[place] for place in sorted(places | {len(knobs) - 1})]
