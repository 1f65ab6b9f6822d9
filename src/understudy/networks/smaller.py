"""Dense networks with fewer channels or blocks, which meet a budget without any structure."""

from __future__ import annotations

import re
from functools import cache

import torch

from understudy.counting.trace import trace

from . import nets
from .nets.wide_resnet import is_legal_depth


def narrower(name: str, most: int, classes: int = 10, *, image: tuple[int, int, int] | None = None) -> str:
    """The widest form of a network with at most so many parameters: `wrn_28_10` → `wrn_28_2.555`.

    With the shape of an image it is so many mult-adds on one. Wide ResNets go by thousandths of their width,
    DARTS by channels. It is counted, not estimated.
    """
    if not nets.is_builtin(name) or name.startswith("resnet"):
        raise ValueError(f"{name!r} has no narrower form: wrn_DEPTH_WIDTH and darts have")
    prefix, _, width = name.rpartition("_") if name != "darts" else ("darts", "", "36")
    unit = 1 if prefix == "darts" else 1000

    def at(step: int) -> str:
        return f"{prefix}_{step / unit:g}"

    def count(step: int) -> int:
        return _count_params(at(step), classes) if image is None else _mult_adds(at(step), classes, image)

    low, high = 1, round(float(width) * unit)
    if most < count(low):
        metric, reach = "parameters" if image is None else "mult-adds", f"{count(low):,} to {count(high):,}"
        raise ValueError(f"{most:,} {metric} are below what a narrower {name} reaches: {reach}")
    if most >= count(high):
        return name
    while high - low > 1:  # count(low) ≤ most < count(high), and counts never fall with the width
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= most else (low, middle)
    return at(low)


def shallower(name: str, most: int, classes: int = 10, *, image: tuple[int, int, int] | None = None) -> str:
    """The widest form with half of the blocks: `wrn_16_2` → `wrn_10_0.951`; counts are as for `narrower`."""
    match = re.fullmatch(r"wrn_([0-9]+)_(.+)", name)
    depth = int(match[1]) if match and nets.is_builtin(name) else 0
    blocks = (depth - 4) // 6 if is_legal_depth(depth) else 0
    if match is None or blocks < 2:
        raise ValueError(f"{name!r} has no shallower form: wrn_DEPTH_WIDTH with DEPTH = 16, 22, 28, ... has")
    return narrower(f"wrn_{6 * (blocks // 2) + 4}_{match[2]}", most, classes, image=image)


@cache
def _count_params(name: str, classes: int) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in nets.build(name, classes=classes).parameters())


@cache
def _mult_adds(name: str, classes: int, image: tuple[int, int, int]) -> int:
    with torch.device("meta"):
        return trace(nets.build(name, classes=classes), torch.zeros(1, *image)).mult_adds.total()
