"""A stand-in as plain PyTorch modules that hold exactly its parameters: what eager code and exporters know.

Where the stages of an order are the parameters themselves, they become convolutions, nn.Linear, reshapes and
batched products in turn. Where stages are products of parameters (merged cores, a formed kernel), the module
holds the transform and makes them in its graph; or, fixed, it holds what was made of them instead.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from understudy.transforms import Transform
from understudy.transforms.orders import FORMED, MANY_BITS, Order
from understudy.transforms.stages import Blocks, Follow, Permute, Product, Stage, is_plain

from .conv import Conv
from .execution import AUTO, Execution
from .geometry import Geometry
from .grouped import GroupedConv
from .held import Held, fixed_stages, held_stages, is_held
from .inside import InsideConv
from .layer import Layer
from .linear import Linear
from .plain import BlockLinear, Following, Joined, Lowered, Middle, Reorder, SharedConv, Shifted, Slices
from .separable import SeparableConv

# Mult-adds in the time that a value takes from one stage to the next, from or to the groups of a convolution,
# and from or to a stage that sees channels in slices, around which a runtime cannot fuse, nor keep its own
# layout of images; measured in ONNX Runtime and OpenVINO, on two cores.
_MOVE, _MOVE_GROUPS, _MOVE_SLICES, _MOVE_SLICES_OF_IMAGES = 24, 48, 600, 1200


def lowered(layer: Layer, *, fixed: bool = False) -> nn.Module:
    """The layer as plain modules, as its execution says; "auto" weighs mult-adds and values moved.

    Where it is `fixed`, modules hold what is made of its parameters, if that is at most four times as much.
    """
    if isinstance(layer, SeparableConv):
        depthwise = copy.deepcopy(layer.depthwise)
        pointwise = lowered(layer.pointwise, fixed=fixed)
        return Lowered(depthwise, *(pointwise if isinstance(pointwise, Lowered) else [pointwise]))
    if isinstance(layer, GroupedConv):
        made = _grouped(layer)
    elif isinstance(layer, InsideConv):
        made = _inside(layer)
    else:
        made = _in_stages(layer, fixed=fixed)
    if fixed and isinstance(made, Layer) and is_held(layer.weight.numel(), layer.transforms):
        return layer.merged()
    return made


def _in_stages(layer: Layer, *, fixed: bool) -> nn.Module:
    """The stages of an order in turn; what cannot be held is made in the graph."""
    transform, images = layer.transform, isinstance(layer, Conv)
    orders = sorted(_orders(layer), key=lambda order: _work(layer, order))
    order, may = orders[0], [order for order in orders if order in _candidates(layer)]
    held = held_stages(transform, order.name) if order in may else None
    if fixed and (held is None or (images and any(_is_sliced(item.stage) for item in held))):
        tried = (fixed_stages(transform, one.name, grouped=images) for one in may)
        held = next((stages for stages in tried if stages), held)
    if held is None:
        return _as_layer(layer, order.name)
    return _convolutions(layer, held) if isinstance(layer, Conv) else _linears(layer, held)


def _as_layer(layer: Layer, order: str) -> Layer:
    """What makes its stages of its parameters in the graph."""
    kept = copy.deepcopy(layer)
    kept.execution = Execution(order=order, recompute=False)
    return kept


def _grouped(layer: GroupedConv) -> nn.Module:
    """Plain stages of all groups as grouped convolutions; what is not plain is formed, group by group."""
    first = layer.convs[0]
    if isinstance(first, InsideConv):
        return _as_layer(layer, FORMED)
    part = first.pointwise if isinstance(first, SeparableConv) else first
    order = _order_of(part)
    groups = [held_stages(transform, order.name) or [] for transform in layer.transforms]
    held = [item for group in groups for item in group]
    if not held or order not in _candidates(part) or not all(is_plain(item.stage) for item in held):
        return _as_layer(layer, FORMED)
    parts: list[nn.Module] = []
    taps = [one.depthwise.weight for one in layer.convs if isinstance(one, SeparableConv)]
    if taps:
        parts.append(_conv(layer.geometry, _cat(taps).flatten(1), layer.in_channels, None))
    turns = list(zip(*groups, strict=True))  # one stage of every group
    for number, turn in enumerate(turns):
        weights = [item.parameter for item in turn if item.parameter is not None]
        geometry = Geometry.pointwise(layer.geometry.dims) if parts else layer.geometry
        bias = layer.bias if number == len(turns) - 1 else None
        parts.append(_conv(geometry, _cat(weights), layer.groups, bias))
    return Lowered(*parts).train(layer.training)


def _cat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one below the other; trained if any of them is."""
    joined = torch.cat([tensor.detach() for tensor in tensors])
    return joined.requires_grad_(any(tensor.requires_grad for tensor in tensors))


def _orders(layer: Layer) -> Sequence[Order]:
    """The order that is set, or all that may be."""
    wanted = layer.execution.in_inference
    return _candidates(layer) if wanted == AUTO else [layer.transform.legal_order(wanted)]


def _order_of(layer: Layer) -> Order:
    """The order set, or the one with the least work a vector, all that is made ahead being free."""
    return min(_orders(layer), key=lambda order: _work(layer, order))


def _work(layer: Layer, order: Order) -> int:
    """Mult-adds a vector or pixel, and those in the time of the values that are moved."""
    return order.per_vector + _moving(layer.transform, order, isinstance(layer, Conv))


def _candidates(layer: Layer) -> Sequence[Order]:
    """The orders that need no patches, and whose first stage takes stride and padding where there are any."""
    orders = layer.transform.legal_orders
    if isinstance(layer, Conv) and layer.geometry != Geometry.pointwise(layer.geometry.dims):
        return [order for order in orders if order.convolves(layer.area)]
    return orders


def _moving(transform: Transform, order: Order, images: bool) -> int:
    """Mult-adds in the time of the values between the stages of an order, a vector or a pixel of images."""
    if order.name == FORMED:
        return 0
    width, work = transform.in_features, 0
    before: int | None = None
    with torch.no_grad():
        for stage in transform.stages(order.name):
            move = _move(stage, images)
            if before is not None:
                work += width * max(move, before)
            if isinstance(stage, Product):
                width = width // stage.weight.shape[1] * stage.weight.shape[0]
            elif isinstance(stage, Blocks):
                width = math.prod(stage.weight.shape[:2])
            elif isinstance(stage, Follow):
                width += len(stage.weight)
                work += 2 * width * _MOVE  # joined, and put in their places
            elif not isinstance(stage, Permute):
                return 1 << MANY_BITS  # a stage of its own kind, such as a Fourier transform
            before = move
    return work


def _move(stage: Stage, images: bool) -> int:
    """Mult-adds in the time that a value takes to or from a stage."""
    if not _is_sliced(stage):
        return _MOVE
    if images:
        return _MOVE_GROUPS if stage.run else _MOVE_SLICES_OF_IMAGES
    return _MOVE_SLICES


def _is_sliced(stage: Stage) -> TypeGuard[Product]:
    return isinstance(stage, Product) and not stage.plain


def _convolutions(layer: Conv, held: list[Held]) -> nn.Module:
    geometry, dims = layer.geometry, layer.geometry.dims
    parts: list[nn.Module] = []
    for place, (stage, parameter) in enumerate(held):
        last = place == len(held) - 1
        if isinstance(stage, Permute):
            parts.append(Reorder(stage, 1))
            continue
        assert parameter is not None
        if isinstance(stage, Follow):
            parts.append(Following(_conv(geometry, parameter, 1, None), stage.places, 1))
            continue
        assert isinstance(stage, Product | Blocks)
        bias = layer.bias if last else None
        if isinstance(stage, Blocks):
            parts.append(_conv(geometry, parameter, len(stage.weight), bias))
        elif stage.plain:
            parts.append(_conv(geometry, parameter, 1, bias))
        elif stage.right == 1:
            parts.append(SharedConv(geometry, parameter, stage.left, bias))
        else:
            conv = _conv(geometry, parameter, 1, None)
            parts += [Slices(stage.left, stage.right), conv, Joined(stage.left, stage.right)]
        geometry = Geometry.pointwise(dims)
    return _together(layer, parts, dims)


def _inside(layer: InsideConv) -> nn.Module:
    """The factors at every pixel, with the taps after the first; or what forms the kernel, if that is set."""
    if layer.execution.in_inference == FORMED:
        return _as_layer(layer, FORMED)
    held = held_stages(layer.transform, layer.transform.legal_orders[1].name)
    if held is None:
        return copy.deepcopy(layer)
    factors = Conv(layer.transform, Geometry.pointwise(layer.geometry.dims), layer.bias)
    first, *others = _convolutions(factors, held).children()
    return Lowered(first, copy.deepcopy(layer.depthwise), *others).train(layer.training)


def _conv(geometry: Geometry, parameter: Tensor, groups: int, bias: Tensor | None) -> nn.Module:
    rows, columns = math.prod(parameter.shape[:-1]), parameter.shape[-1] // geometry.area
    conv = geometry.dense(
        columns * groups, rows, bias=bias is not None, groups=groups, device=torch.device("meta")
    )
    kernel = parameter.detach().reshape(rows, columns, *geometry.kernel)
    conv.weight = nn.Parameter(kernel, parameter.requires_grad)
    if bias is not None:
        conv.bias = nn.Parameter(bias.detach().clone(), bias.requires_grad)
    return conv


def _linears(layer: Layer, held: list[Held]) -> nn.Module:
    parts: list[nn.Module] = []
    for stage, parameter in held:
        if isinstance(stage, Permute):
            parts.append(Reorder(stage, -1))
        elif isinstance(stage, Blocks):
            assert parameter is not None
            parts.append(BlockLinear(parameter))
        elif isinstance(stage, Follow):
            assert parameter is not None
            (inner,) = _products(Product(parameter), parameter)
            parts.append(Following(inner, stage.places, -1))
        else:
            assert parameter is not None
            assert isinstance(stage, Product)
            parts += _products(stage, parameter)
    return _together(layer, parts, 0)


def _products(stage: Product, parameter: nn.Parameter) -> Iterator[nn.Module]:
    rows, columns = parameter.shape
    if stage.right == 1:
        linear: nn.Linear = skip_init(nn.Linear, columns, rows, bias=False, device="meta")
        linear.weight = parameter
        if stage.plain:
            yield linear
        else:
            yield from (nn.Unflatten(-1, (stage.left, columns)), linear, nn.Flatten(-2))
    else:
        yield from (nn.Unflatten(-1, (stage.left, columns, stage.right)), Middle(parameter), nn.Flatten(-3))


def _together(layer: Layer, parts: list[nn.Module], dims: int) -> nn.Module:
    """The parts in turn; the bias is the last one's where that can add it, else it comes by itself."""
    if layer.bias is not None and not any(part._parameters.get("bias") is not None for part in parts):
        bias = nn.Parameter(layer.bias.detach().clone(), layer.bias.requires_grad)
        last = parts[-1]
        if isinstance(last, nn.Linear):
            last.bias = bias
        else:
            parts.append(Shifted(bias, dims))
    together = Lowered(*parts).train(layer.training)
    together.in_features = None if dims else layer.transform.in_features
    together.shell = layer.shell if isinstance(layer, Linear) else None
    return together
