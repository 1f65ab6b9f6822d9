"""What sites and stand-ins take: by the model alone, or by it and what was measured on this machine.

The model's ratios hold from machine to machine only roughly, and least for layers of few channels. So the
network is measured as it is, and of every kind of layer a few stand-ins, of random weights, beside it; what
lies between these follows the model.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from understudy.layers.replacement import Replacement, Spec, Way
from understudy.transforms import Transform

from .pacing import network_nanoseconds, site_nanoseconds, stand_in_nanoseconds
from .sites import Site, Sites
from .spend import highest_within
from .stopwatch import Passed, now

_SECONDS = 2.0  # in which layers are begun to be timed, all together
_LAYER_SECONDS = 0.02  # in which rounds are begun, of one layer and its stand-ins
_ROUNDS = 6
# Of the knobs that are timed, from the cheapest to the dense layer's size.
_PLACES = (0.0, 0.1, 0.25, 0.5, 1.0)


class Times:
    """By the model alone, of no machine in particular."""

    is_measured = False

    def original(self, survey: Sites) -> int:
        """Of a pass as it is, of which budgets are shares."""
        return self.whole(survey)

    def whole(self, survey: Sites) -> int:
        """Of the sites as they are, and of what is not substituted."""
        return network_nanoseconds(survey)

    def site(self, site: Site) -> int:
        """Of all calls of a site as it is, in one pass."""
        return site_nanoseconds(site)

    def stand_in(
        self, site: Site, transform: type[Transform], way: Way, shape: tuple[int, int], knob: int
    ) -> int:
        """Of all calls of what stands in for a site, in one pass."""
        return stand_in_nanoseconds(site, transform, way, shape, knob)


MODELLED = Times()


@dataclasses.dataclass(frozen=True)
class _Curve:
    """Modelled nanoseconds of some knobs, rising, and what each takes as a share of the dense layer."""

    modelled: tuple[int, ...]
    shares: tuple[float, ...]

    def share(self, modelled: int) -> float:
        """Between two of them in proportion, and beyond them as the model has it."""
        place = bisect.bisect_left(self.modelled, modelled)
        if place == 0 or place == len(self.modelled):
            nearest = min(place, len(self.modelled) - 1)
            return self.shares[nearest] * modelled / self.modelled[nearest]
        low, high = self.modelled[place - 1 : place + 1]
        before, after = self.shares[place - 1 : place + 1]
        return before + (after - before) * (modelled - low) / (high - low)


class MeasuredTimes(Times):
    """The original as it was measured, and stand-ins as shares of the layers that they stand for."""

    is_measured = True

    def __init__(self, network: nn.Module, taken: Passed, survey: Sites) -> None:
        self.network, self.taken = network, taken
        modelled = sum(site_nanoseconds(site) for site in survey.chosen if site.path in taken.sites)
        measured = sum(taken.sites.values())
        self.scale = measured / modelled if modelled and measured else 1.0
        self._sum = sum(self.site(site) for site in survey.chosen if site.positions is not None)
        self._curves: dict[tuple[object, ...], _Curve | None] = {}
        self._factors: list[tuple[type[Transform], float]] = []  # of the model, by what was timed
        self._ends: float | None = None

    def original(self, survey: Sites) -> int:  # noqa: ARG002
        """As it was measured."""
        return self.taken.original

    def whole(self, survey: Sites) -> int:  # noqa: ARG002
        """What lies outside the sites as it was measured, and the sites."""
        return self.taken.rest + self._sum

    def site(self, site: Site) -> int:
        """As it was measured; one of which no call was seen, by the model at the pace of the others."""
        found = self.taken.sites.get(site.path)
        return round(self.scale * site_nanoseconds(site)) if found is None else found

    def stand_in(
        self, site: Site, transform: type[Transform], way: Way, shape: tuple[int, int], knob: int
    ) -> int:
        """A share of its site's time, by the stand-ins for it that were timed."""
        modelled = super().stand_in(site, transform, way, shape, knob)
        if site.path not in self.taken.inputs:
            return round(self.scale * modelled)
        curve = self._curve(site, transform, way, shape)
        if curve is not None:
            return max(1, round(self.site(site) * curve.share(modelled)))
        known = [factor for made, factor in self._factors if made is transform]
        factor = statistics.median(known or [factor for _, factor in self._factors] or [1.0])
        return max(1, round(factor * self.site(site) * modelled / max(1, site_nanoseconds(site))))

    def _curve(
        self, site: Site, transform: type[Transform], way: Way, shape: tuple[int, int]
    ) -> _Curve | None:
        """That of a layer like this one; None where there was no time left to measure any."""
        dense, given = self.network.get_submodule(site.path), self.taken.inputs[site.path]
        key = (str(dense), type(dense), tuple(given.shape), given.dtype, given.stride(), transform, way)
        if key not in self._curves:
            if self._ends is None:
                self._ends = time.monotonic() + _SECONDS
            made = None
            if time.monotonic() < self._ends:
                made = self._timed(site, dense, given, transform, way, shape)
            self._curves[key] = made
        return self._curves[key]

    def _timed(
        self,
        site: Site,
        dense: nn.Module,
        given: Tensor,
        transform: type[Transform],
        way: Way,
        shape: tuple[int, int],
    ) -> _Curve | None:
        knobs = _some_knobs(site, transform, shape)
        if not knobs:
            return None
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(given.shape, generator=generator).to(given.dtype)
        x = torch.empty_like(given, device="cpu").copy_(x)  # laid out as what the site is given
        calls: list[Callable[[], object]] = [lambda: dense(x)]
        for knob in knobs:
            spec = Spec(transform.name, knob)
            of_site = site.kind, site.in_features, site.out_features, site.kernel
            planned = Replacement(site.path, *of_site, way, spec, groups=site.groups)
            layer = planned.build(dense).eval()
            calls.append(lambda layer=layer: layer(x))  # type: ignore[misc]
        first, *others = _best_of(calls)
        modelled = [super(MeasuredTimes, self).stand_in(site, transform, way, shape, knob) for knob in knobs]
        dense_modelled = max(1, site_nanoseconds(site))
        points: dict[int, float] = {}
        least = math.inf
        for each, taken in sorted(zip(modelled, others, strict=True), reverse=True):
            least = points[each] = min(least, taken / first)  # noise only adds: none outlasts a dearer one
        self._factors += [(transform, share * dense_modelled / each) for each, share in points.items()]
        return _Curve(tuple(points)[::-1], tuple(points.values())[::-1])


def _some_knobs(site: Site, transform: type[Transform], shape: tuple[int, int]) -> Sequence[int]:
    """From the cheapest to the last that has no more parameters than the site, each once."""
    legal = transform.knobs(*shape)
    count = highest_within(legal, lambda knob: site.groups * transform.params(*shape, knob), site.params) + 1
    return (
        [legal[place] for place in sorted({round(share * (count - 1)) for share in _PLACES})] if count else []
    )


def _best_of(calls: Sequence[Callable[[], object]]) -> list[int]:
    """Nanoseconds of each: the best of some rounds in turns, after one that does not count."""
    best: list[int] = []
    with torch.no_grad():
        for call in calls:
            call()
        began = time.monotonic()
        for number in range(_ROUNDS):
            if number and time.monotonic() - began > _LAYER_SECONDS:
                break
            taken = []
            for call in calls:
                started = now()
                call()
                taken.append(max(1, now() - started))
            best = list(map(min, best, taken)) if best else taken
    return best
