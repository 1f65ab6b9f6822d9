"""How long an order takes on a processor, roughly: calls, mult-adds and values moved, stage by stage.

The numbers are those of one core, measured in eager PyTorch; `benchmarks/pace.py` tells how well they choose.
Only their ratios decide between orders, and those differ little from machine to machine; where products lag,
stages of many mult-adds are quicker than this, all by about as much.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import torch

from understudy.transforms import Transform
from understudy.transforms.orders import FORMED, Order
from understudy.transforms.stages import Blocks, Follow, Permute, Product, few_rows
from understudy.transforms.two_factors import Waist

Kind = Literal["plain", "sliced", "blocks", "depthwise", "moved", "other"]
_GAIN = 0.9  # an order must take less than this share of the dense product's time to be preferred to it


class Work(NamedTuple):
    """What one stage does: once a call, and for every vector."""

    kind: Kind
    weights: int  # entries that are read once a call
    mult_adds: int
    values: int  # read and written


class Pace(NamedTuple):
    """Nanoseconds of a call, mult-adds in one, and values moved in one."""

    call: float
    mult_adds: float
    values: float


_WEIGHTS = 4.0  # entries of a matrix read in a nanosecond
_PACES: dict[Kind, Pace] = {
    "plain": Pace(10_000, 60, 3),
    "sliced": Pace(40_000, 35, 4),
    "blocks": Pace(30_000, 60, 4),
    "depthwise": Pace(15_000, 15, 2),
    "moved": Pace(10_000, 1, 2),
    "other": Pace(100_000, 1, 1),
}
_BLOCKS_OF_FEW_ROWS = Pace(30_000, 40, 2)  # as batched products over vectors that lie in rows
_BLOCKS_OF_ROWS = Pace(100_000, 25, 2)  # as a grouped convolution over them


OVERHEAD = (
    10_000  # nanoseconds in which a stand-in looks whether what it kept still holds, and its calls begin
)


def pace_of(works: Iterable[Work], positions: int, *, rows: bool = False) -> float:
    """Roughly the nanoseconds of stages in turn on so many vectors, which lie in `rows` or in columns."""
    threads = torch.get_num_threads()
    taken = 0.0
    for work in works:
        pace = _PACES[work.kind]
        if rows and work.kind == "blocks":
            pace = _BLOCKS_OF_FEW_ROWS if positions <= few_rows(training=False) else _BLOCKS_OF_ROWS
        taken += pace.call + work.weights / _WEIGHTS
        taken += positions * (work.mult_adds / pace.mult_adds + work.values / pace.values) / threads
    return taken


def inside_pace(
    waist: Waist, shape: tuple[int, int], area: int, pixels: int, positions: int, groups: int = 1
) -> float:
    """The way in at every input pixel, the taps and the way out at every output pixel; all groups at once."""
    in_features, out_features = shape
    width = groups * waist.width
    coming = Work("plain", groups * waist.before, groups * waist.before, groups * in_features + width)
    going = Work("plain", groups * waist.after, groups * waist.after, width + groups * out_features)
    return pace_of([coming], pixels) + pace_of([taps_work(width, area), going], positions)


def taps_work(channels: int, area: int) -> Work:
    """A depthwise convolution."""
    return Work("depthwise", 0, channels * area, 2 * channels)


def formed_work(in_channels: int, out_channels: int, area: int) -> Work:
    """One product with a matrix, or one convolution with a kernel of so many taps, formed ahead."""
    entries = in_channels * out_channels * area
    return Work("plain", entries, entries, in_channels + out_channels)


def is_whole_quicker(whole: float, parts: float) -> bool:
    """Whether one product that is formed ahead is preferred to parts that take so long."""
    return _GAIN * whole <= parts


def quickest(
    transform: type[Transform],
    shape: tuple[int, int],
    knob: int,
    orders: Sequence[Order],
    positions: int,
    *,
    area: int = 1,
    rows: bool = False,
) -> tuple[Order, float]:
    """The order that takes the least time, and that; "formed" where no other gains enough on it.

    All that does not depend on the input is done ahead. Vectors may be patches of `area` taps, of which each
    value is read once.
    """
    found: list[tuple[float, int, float]] = []
    for place, order in enumerate(orders):
        time = pace_of(works(transform, *shape, knob, order, area), positions, rows=rows)
        found.append((_GAIN * time if order.name == FORMED else time, place, time))
    _, place, time = min(found)
    return orders[place], time


@functools.lru_cache(maxsize=65536)
def works(
    transform: type[Transform], in_features: int, out_features: int, knob: int, order: Order, area: int = 1
) -> tuple[Work, ...]:
    """What the stages of an order do, from their shapes alone."""
    if order.name == FORMED:
        return (formed_work(in_features // area, out_features, area),)
    with torch.no_grad():
        stages = _weightless(transform, in_features, out_features, knob).stages(order.name)
    made: list[Work] = []
    width = in_features
    for stage in stages:
        before = width
        if isinstance(stage, Product):
            rows, columns = stage.weight.shape
            width = before // columns * rows
            kind: Kind = "plain" if stage.plain else "sliced"
            made.append(Work(kind, rows * columns, before * rows, before + width))
        elif isinstance(stage, Blocks):
            groups, rows, columns = stage.weight.shape
            width = groups * rows
            made.append(Work("blocks", stage.weight.numel(), rows * before, before + width))
        elif isinstance(stage, Follow):
            width += len(stage.weight)
            made.append(Work("plain", stage.weight.numel(), stage.weight.numel(), before + width))
            made += [Work("moved", 0, 0, 2 * width)] * 2
        elif isinstance(stage, Permute):
            width = math.prod(stage.sizes)
            made.append(Work("moved", 0, 0, 2 * width))
        else:  # a stage of its own kind, such as a Fourier transform: what no other stage does
            known = sum(work.mult_adds for work in made)
            made.append(Work("other", 0, max(0, order.per_vector - known), before + out_features))
            width = out_features
    first = made[0]
    read_twice = in_features - in_features // area  # neighbouring patches share their values
    return (first._replace(values=first.values - read_twice), *made[1:])


@functools.lru_cache(maxsize=8)  # one after the other is asked for all its orders
def _weightless(transform: type[Transform], in_features: int, out_features: int, knob: int) -> Transform:
    return transform(in_features, out_features, knob, device="meta")
