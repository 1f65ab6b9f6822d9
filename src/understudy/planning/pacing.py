"""What sites and their stand-ins take in inference, modelled: calls, mult-adds and values moved."""

from __future__ import annotations

from collections.abc import Sequence

from understudy.layers.pace import (
    OVERHEAD,
    Work,
    formed_work,
    inside_pace,
    is_whole_quicker,
    pace_of,
    quickest,
    taps_work,
)
from understudy.layers.replacement import Way
from understudy.transforms import Transform
from understudy.transforms.orders import convolving
from understudy.transforms.registry import with_two_factors
from understudy.transforms.two_factors import Waist

from .sites import Site, Sites


def stand_in_nanoseconds(
    site: Site, transform: type[Transform], way: Way, shape: tuple[int, int], knob: int
) -> int:
    """Of all calls in one pass; where another module reads the weight, each read forms it."""
    if way == "inside":
        return _inside_nanoseconds(site, with_two_factors(transform).waist(*shape, knob), shape)
    area = site.area if way == "unfolded" else 1
    orders = convolving(transform.all_orders(*shape, knob), area)
    taps = taps_work(site.in_features, site.area)
    forming = Work("plain", 0, site.groups * transform.forming_mult_adds(*shape, knob), 0)
    taken = pace_of([forming] * site.weight_reads, 1)
    for positions in _positions(site):
        rows = site.kind == "linear"
        _, each = quickest(transform, shape, knob, orders, positions, area=area, rows=rows)
        parts = site.groups * each
        if way == "separable":
            parts = _or_whole(site, shape, positions, parts + pace_of([taps], positions))
        taken += OVERHEAD + parts
    return round(taken)


def _inside_nanoseconds(site: Site, waist: Waist, shape: tuple[int, int]) -> int:
    taken = 0.0
    for pixels, positions in zip(site.pixels or (), _positions(site), strict=True):
        parts = inside_pace(waist, shape, site.area, pixels, positions, site.groups)
        taken += OVERHEAD + _or_whole(site, shape, positions, parts)
    return round(taken)


def _or_whole(site: Site, shape: tuple[int, int], positions: int, parts: float) -> float:
    """Of parts with taps, or of their whole kernel where that is quicker; groups run their parts."""
    if site.groups > 1:
        return parts
    whole = pace_of([formed_work(*shape, site.area)], positions)
    return whole if is_whole_quicker(whole, parts) else parts


def site_nanoseconds(site: Site) -> int:
    """Of all calls in one pass, as it is."""
    work = Work("plain", site.params, site.params, site.in_features + site.out_features)
    return round(sum(pace_of([work], positions) for positions in _positions(site)))


def network_nanoseconds(survey: Sites) -> int:
    """Of a pass as it is: its sites, and the mult-adds outside them."""
    if survey.mult_adds is None:
        raise ValueError("a budget of time needs an example input: plan(..., example=x)")
    inside = [site for site in survey.items if site.positions]
    outside = max(0, survey.mult_adds - sum(site.mult_adds or 0 for site in inside))
    return sum(map(site_nanoseconds, inside)) + round(pace_of([Work("plain", 0, outside, 0)], 1))


def _positions(site: Site) -> Sequence[int]:
    if site.positions is None:
        raise ValueError("a budget of time needs an example input: plan(..., example=x)")
    return site.positions
