"""What a plan may be told of a trained network: how much every stand-in for a layer would lose."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from torch import nn

from understudy.layers.replacement import Way
from understudy.transforms import Transform

from .allocate import Choice, allocate
from .pricing import Pricing
from .spend import top_up

_MOST_KNOBS = 24
_WORK = 2 * 10**9  # of one trial, out · in · (in + out), summed over all layers: about a minute of one core


class Worth(Protocol):
    """Knows what a network's layers see, and so what an error of theirs is worth."""

    @property
    def paths(self) -> Sequence[str]:
        """The layers that it knows."""

    @property
    def unreached(self) -> Sequence[str]:
        """Those of them on which the output that is kept does not depend, so far as gradients tell."""

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


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """A trained network, and what its layers are worth."""

    model: nn.Module
    worth: Worth

    def choices(self, pricings: Sequence[Pricing], metric: str) -> list[Choice]:
        """What one layer may become: as it is, or by each of these, at the knobs worth their price."""
        made = [Choice(pricings[0].dense_cost(metric), 0.0)]
        for pricing in pricings:
            knobs = spread(pricing.ladder(metric, published=False).knobs, _MOST_KNOBS)
            if not knobs:
                continue
            path = pricing.site.path
            layer = self.model.get_submodule(path)
            losses = self.worth.losses(path, layer, pricing.transform, pricing.way, knobs, **pricing.options)
            made += [
                Choice(pricing.cost(metric, knob), loss, pricing.transform.name, pricing.way, knob)
                for knob, loss in zip(knobs, losses, strict=True)
            ]
        return made


@dataclasses.dataclass(frozen=True)
class Picked:
    """One of the ways to price a site, and the knob; none is the dense layer."""

    pricing: Pricing
    knob: int | None


def pick(
    knowledge: Knowledge, candidates: Mapping[str, Sequence[Pricing]], metric: str, budget: int
) -> dict[str, Picked]:
    """For every site one of its candidates, within a budget for all, where the outputs lose least by it.

    The cheapest of all must be within the budget.
    """
    options = [knowledge.choices(pricings, metric) for pricings in candidates.values()]
    chosen = allocate(options, budget)
    picked = [
        next(
            (one for one in pricings if (one.transform.name, one.way) == (choice.transform, choice.way)),
            pricings[0],
        )
        for pricings, choice in zip(candidates.values(), chosen, strict=True)
    ]
    ladders = [pricing.ladder(metric, published=False) for pricing in picked]
    left = budget - sum(choice.cost for choice in chosen)
    knobs = top_up(ladders, [choice.knob for choice in chosen], left)
    return {
        path: Picked(pricing, knob) for path, pricing, knob in zip(candidates, picked, knobs, strict=True)
    }


def affordable(candidates: Mapping[str, Sequence[Pricing]]) -> tuple[dict[str, list[Pricing]], int]:
    """Of several candidates for a layer, those that bounded work can try; and how many layers lost some.

    What one decomposition tells costs little; all others must be fitted, the smallest layers first.
    """
    kept: dict[str, list[Pricing]] = {}
    spent = cut = 0
    for path in sorted(candidates, key=lambda path: _work(candidates[path])):
        pricings = candidates[path]
        spent += _work(pricings)
        closed = [pricing for pricing in pricings if pricing.is_closed_form]
        is_cut = len(pricings) > 1 and spent > _WORK and bool(closed)
        cut += is_cut
        kept[path] = closed if is_cut else list(pricings)
    return {path: kept[path] for path in candidates}, cut


def _work(pricings: Sequence[Pricing]) -> int:
    """Of trying all of them once, in mult-adds of weighing one error."""
    fitted = [pricing.fitted_shape for pricing in pricings if not pricing.is_closed_form]
    return sum(rows * columns * (rows + columns) for rows, columns in fitted)


def spread(knobs: Sequence[int], most: int) -> list[int]:
    """All knobs, or so many of them, the first and the last among them, in steps that grow evenly."""
    if len(knobs) <= most:
        return list(knobs)
    growth = len(knobs) ** (1 / (most - 1))
    places = {min(len(knobs) - 1, max(step, round(growth**step) - 1)) for step in range(most)}
    return [knobs[place] for place in sorted(places | {len(knobs) - 1})]
