"""Plain dense networks by name: the ones the paper substitutes, and small ones to study with."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from .darts import Darts
from .resnet import BottleneckResNet, CifarResNet
from .wide_resnet import WideResNet, is_legal_depth

__all__ = [
    "BottleneckResNet",
    "CifarResNet",
    "Darts",
    "WideResNet",
    "build",
    "input_shape",
    "is_builtin",
    "names",
]


class _Network(NamedTuple):
    make: Callable[..., nn.Module]
    input_shape: tuple[int, int, int] = (3, 32, 32)


_NETWORKS = {
    "darts": _Network(Darts),
    "resnet20": _Network(partial(CifarResNet, 20)),
    "resnet56": _Network(partial(CifarResNet, 56)),
    "wrn_16_1": _Network(partial(WideResNet, 16, 1)),
    "wrn_16_2": _Network(partial(WideResNet, 16, 2)),
    "wrn_28_10": _Network(partial(WideResNet, 28, 10)),
    "wrn_40_2": _Network(partial(WideResNet, 40, 2)),
    "wrn_50_2": _Network(BottleneckResNet, input_shape=(3, 224, 224)),
}


def names() -> list[str]:
    """The common names; `wrn_DEPTH_WIDTH` of other depths and widths and `darts_CHANNELS` are known too."""
    return sorted(_NETWORKS)


def is_builtin(name: str) -> bool:
    """Whether `build` knows this name."""
    return _find(name) is not None


def build(name: str, **options: Any) -> nn.Module:
    """A fresh network by name; options such as `classes=100` go to its class."""
    return _get(name).make(**options)


def input_shape(name: str) -> tuple[int, int, int]:
    """Channels, height and width of one image for the network of this name."""
    return _get(name).input_shape


_WIDTH = r"(0|[1-9][0-9]{0,3})(\.[0-9]{0,8}[1-9])?"  # a number is written in one way only


def _find(name: str) -> _Network | None:
    if name in _NETWORKS:
        return _NETWORKS[name]
    channels = re.fullmatch(r"darts_([1-9][0-9]{0,3})", name)
    if channels is not None:
        return _Network(partial(Darts, int(channels[1])))
    match = re.fullmatch(rf"wrn_(?P<depth>[1-9][0-9]{{0,3}})_(?P<width>{_WIDTH})", name)
    if match is None or float(match["width"]) == 0:
        return None
    depth, width = int(match["depth"]), float(match["width"])
    if depth == 50 and width < 2:
        return _Network(partial(BottleneckResNet, width=width), input_shape=(3, 224, 224))
    return _Network(partial(WideResNet, depth, width)) if is_legal_depth(depth) else None


def _get(name: str) -> _Network:
    network = _find(name)
    if network is None:
        raise KeyError(
            f"no network {name!r}; legal are {', '.join(names())}, wrn_DEPTH_WIDTH with DEPTH = 6n + 4, "
            "wrn_50_WIDTH with WIDTH up to 2, darts_CHANNELS"
        )
    return network
