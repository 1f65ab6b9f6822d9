"""Which order of a stand-in plain modules take: for a batch in PyTorch, or for a runtime of files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

import torch

from understudy.transforms.orders import FORMED, MANY_BITS, Order
from understudy.transforms.stages import Blocks, Follow, Permute, Product, Scale, Stage

from .conv import Conv
from .execution import AUTO
from .geometry import Geometry
from .held import Held, fixed_stages, held_stages
from .linear import Linear

# Mult-adds in the time that a value takes from one stage to the next, from or to the groups of a convolution,
# and from or to a stage that sees channels in slices, around which a runtime cannot fuse, nor keep its own
# layout of images; and in the time that a stage takes for however few positions. Measured in ONNX Runtime and
# OpenVINO, on two cores.
_MOVE, _MOVE_GROUPS, _MOVE_SLICES, _MOVE_SLICES_OF_IMAGES = 24, 48, 600, 1200
_CALL = 600_000


class Purpose(NamedTuple):
    """What plain modules are for.

    In a `file` all is free that does not depend on the input: its runtime makes it once. `fixed`, it is made
    now. In PyTorch it is neither, and an order counts whose stages are the parameters themselves.
    """

    fixed: bool = False
    file: bool = False

    @property
    def is_made_ahead(self) -> bool:
        """Whether products of parameters cost nothing."""
        return self.fixed or self.file


def chosen(layer: Conv | Linear, purpose: Purpose, positions: int | None) -> tuple[str, list[Held] | None]:
    """The order to take, and its stages where modules can hold them."""
    if purpose.is_made_ahead:
        found = _made_ahead(layer, purpose, positions)
        if purpose.file or found[1] is not None:
            return found
    wanted = layer.execution.in_inference
    if wanted == AUTO and positions:
        wanted = layer.order_in_inference(positions).name
    names = [order.name for order in _by_work(layer, AUTO) if order.name != FORMED]
    for name in [wanted] * (wanted in names) + names if wanted != FORMED else []:
        held = held_stages(layer.transform, name)
        if held is not None:
            return name, held
    return FORMED, held_stages(layer.transform, FORMED)


def _made_ahead(
    layer: Conv | Linear, purpose: Purpose, positions: int | None
) -> tuple[str, list[Held] | None]:
    """The order with the least work; fixed, the first whose stages are few and not in slices of images."""
    transform, images = layer.transform, isinstance(layer, Conv)
    orders = _by_work(layer, layer.execution.in_inference, positions)
    possible = {order.name for order in _candidates(layer)}
    name = orders[0].name
    held = held_stages(transform, name) if name in possible else None
    if purpose.fixed and (held is None or (images and any(is_sliced(item.stage) for item in held))):
        tried = ((each.name, fixed_stages(transform, each.name, grouped=images)) for each in orders)
        name, held = next(((each, made) for each, made in tried if each in possible and made), (name, held))
    return name, held


def is_sliced(stage: Stage) -> TypeGuard[Product]:
    """Whether a matrix acts on slices of the channels."""
    return isinstance(stage, Product) and not stage.plain


def _by_work(layer: Conv | Linear, wanted: str, positions: int | None = None) -> Sequence[Order]:
    """The order that is set, or all that may be, those with the least work first."""
    orders = _candidates(layer) if wanted == AUTO else [layer.transform.legal_order(wanted)]
    return sorted(orders, key=lambda order: _work(layer, order, positions))


def _candidates(layer: Conv | Linear) -> Sequence[Order]:
    """The orders that need no patches, and whose first stage takes stride and padding where there are any."""
    orders = layer.transform.legal_orders
    if isinstance(layer, Conv) and layer.geometry != Geometry.pointwise(layer.geometry.dims):
        return [order for order in orders if order.convolves(layer.area)]
    return orders


def _work(layer: Conv | Linear, order: Order, positions: int | None) -> float:
    """Mult-adds a vector or pixel, those in the time of the values that are moved, and of calls if known."""
    calls, moving = (1, 0) if order.name == FORMED else _between(layer, order)
    return order.per_vector + moving + (calls * _CALL / positions if positions else 0)


def _between(layer: Conv | Linear, order: Order) -> tuple[int, int]:
    """The stages of an order, and mult-adds in the time of the values between them, a vector or pixel."""
    images = isinstance(layer, Conv)
    width, calls, work = layer.transform.in_features, 0, 0
    before: int | None = None
    with torch.no_grad():
        for stage in layer.transform.stages(order.name):
            move = _move(stage, images)
            calls += 1
            if before is not None:
                work += width * max(move, before)
            if isinstance(stage, Product):
                width = width // stage.weight.shape[1] * stage.weight.shape[0]
            elif isinstance(stage, Blocks):
                width = math.prod(stage.weight.shape[:2])
            elif isinstance(stage, Follow):
                width += len(stage.weight)
                work += 2 * width * _MOVE  # joined, and put in their places
            elif not isinstance(stage, Permute | Scale):
                return calls, 1 << MANY_BITS  # a stage of its own kind, such as a Fourier transform
            before = move
    return calls, work


def _move(stage: Stage, images: bool) -> int:
    """Mult-adds in the time that a value takes to or from a stage."""
    if not is_sliced(stage):
        return _MOVE
    if images:
        return _MOVE_GROUPS if stage.run else _MOVE_SLICES_OF_IMAGES
    return _MOVE_SLICES
