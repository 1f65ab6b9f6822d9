"""Weights that small layers of one kind compute from their parameters, computed at once.

A graph then says once how they are computed, which of small layers takes more bytes than their parameters.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor, nn

from understudy.layers.plain import Computed

_SMALL = 1 << 16  # entries of a matrix; beside the parameters of larger ones no text matters


def compute_together_(network: nn.Module) -> None:
    """In every call of a network, first compute the weights of all layers that have others like them."""
    kinds: dict[Hashable, list[Computed]] = {}
    for module in network.modules():
        if isinstance(module, Computed):
            kinds.setdefault(_kind(module), []).append(module)
    groups = [layers for layers in kinds.values() if len(layers) > 1 and _is_small(layers[0])]

    def before(*_: Any) -> None:
        for layers in groups:
            _give_(layers)

    def after(*_: Any) -> None:
        for layers in groups:
            for layer in layers:
                layer.given = None

    if groups:
        network.register_forward_pre_hook(before)
        network.register_forward_hook(after)


def _kind(layer: Computed) -> Hashable:
    """What layers have in common whose weights differ in numbers alone."""
    first, *_ = transforms = layer.members
    kernel = None if layer.geometry is None else layer.geometry.kernel
    shape = first.in_features, first.out_features, first.knob, next(first.parameters()).dtype
    return type(first), shape, tuple(first.spec_options().items()), len(transforms), kernel


def _is_small(layer: Computed) -> bool:
    first, *_ = layer.members
    return first.in_features * first.out_features <= _SMALL


def _give_(layers: Sequence[Computed]) -> None:
    alike = [each for layer in layers for each in layer.members]
    matrices = type(alike[0]).matrices(alike)
    if matrices is None:
        return
    kernel = () if layers[0].geometry is None else layers[0].geometry.kernel
    whole = matrices.flatten(0, 1)
    if kernel:
        whole = whole.unflatten(1, (-1, *kernel))
    weights: list[Tensor] = list(whole.chunk(len(layers)))
    for layer, weight in zip(layers, weights, strict=True):
        layer.given = weight
