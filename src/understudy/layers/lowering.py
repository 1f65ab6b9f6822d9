"""A stand-in as plain PyTorch modules that hold exactly its parameters: what eager code and exporters know.

Where the stages of an order are the parameters themselves, they become convolutions, nn.Linear, reshapes and
batched products in turn. Where stages are products of parameters (merged cores, a formed kernel), the module
holds the transform and makes them in its graph.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
from .inside import InsideConv
from .layer import Layer
from .linear import Linear
from .plain import BlockLinear, Following, Joined, Lowered, Middle, Reorder, Shifted, Slices
from .separable import SeparableConv

# Mult-adds in the time that a value takes from one stage to the next, and from or to one that sees channels
# in slices, around which a runtime cannot fuse, nor keep its own layout of images; measured in ONNX Runtime
# and OpenVINO, on two cores.
_MOVE, _MOVE_SLICES, _MOVE_SLICES_OF_IMAGES = 24, 600, 1200
_CODE = 1 << 40  # above every number of entries; its multiples and squares are exact in float64


class Held(NamedTuple):
    """A stage whose weight is one parameter, its entries in some order."""

    stage: Stage
    parameter: nn.Parameter | None  # None: the stage has no weight


def lowered(layer: Layer) -> nn.Module:
    """The layer as plain modules, as its execution says; "auto" weighs mult-adds and values moved."""
    if isinstance(layer, SeparableConv):
        depthwise = copy.deepcopy(layer.depthwise)
        pointwise = lowered(layer.pointwise)
        return Lowered(depthwise, *(pointwise if isinstance(pointwise, Lowered) else [pointwise]))
    if isinstance(layer, GroupedConv):
        return _grouped(layer)
    if isinstance(layer, InsideConv) and layer.execution.in_inference != FORMED:
        return _inside(layer)
    order = _order_of(layer)
    held = held_stages(layer.transform, order.name) if order in _candidates(layer) else None
    if held is None:
        return _as_layer(layer, order.name)
    if isinstance(layer, Conv):
        return _convolutions(layer, held)
    return _linears(layer, held)


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


def _order_of(layer: Layer) -> Order:
    """The order set, or the one with the least work a vector, all that is made ahead being free."""
    transform, wanted = layer.transform, layer.execution.in_inference
    if wanted != AUTO:
        return transform.legal_order(wanted)
    slices = _MOVE_SLICES_OF_IMAGES if isinstance(layer, Conv) else _MOVE_SLICES
    return min(_candidates(layer), key=lambda order: order.per_vector + _moving(transform, order, slices))


def _candidates(layer: Layer) -> Sequence[Order]:
    """The orders that need no patches, and whose first stage takes stride and padding where there are any."""
    orders = layer.transform.legal_orders
    if isinstance(layer, Conv) and layer.geometry != Geometry.pointwise(layer.geometry.dims):
        return [order for order in orders if order.convolves(layer.area)]
    return orders


def _moving(transform: Transform, order: Order, slices: int) -> int:
    """Mult-adds in the time of the values between the stages of an order, a vector; by slices, so many."""
    if order.name == FORMED:
        return 0
    width, work = transform.in_features, 0
    was_sliced: bool | None = None
    with torch.no_grad():
        for stage in transform.stages(order.name):
            sliced = isinstance(stage, Product) and not stage.plain
            if was_sliced is not None:
                work += width * (slices if sliced or was_sliced else _MOVE)
            if isinstance(stage, Product):
                width = width // stage.weight.shape[1] * stage.weight.shape[0]
            elif isinstance(stage, Blocks):
                width = math.prod(stage.weight.shape[:2])
            elif isinstance(stage, Follow):
                width += len(stage.weight)
                work += 2 * width * _MOVE  # joined, and put in their places
            elif not isinstance(stage, Permute):
                return 1 << MANY_BITS  # a stage of its own kind, such as a Fourier transform
            was_sliced = sliced
    return work


def held_stages(transform: Transform, order: str) -> list[Held] | None:
    """The stages of an order with their parameters, or None where a weight is not just one parameter.

    Every entry of every parameter is given a number of its own: what the stages make of them tells which
    entry is where, and no sum or product of such numbers is one of them.
    """
    if order == FORMED or transform.legal_order(order).per_call:
        return None
    probe = copy.deepcopy(transform).to("cpu").double()
    parameters = dict(transform.named_parameters())
    starts: dict[str, int] = {}
    start = _CODE
    with torch.no_grad():
        for name, parameter in probe.named_parameters():
            starts[name] = start
            codes = torch.arange(start, start + parameter.numel(), dtype=torch.float64)
            parameter.copy_(codes.reshape(parameter.shape))
            start += parameter.numel()
        stages = probe.stages(order)
        held: list[Held] = []
        for stage in stages:
            if isinstance(stage, Permute):
                held.append(Held(stage, None))
                continue
            if not isinstance(stage, Product | Blocks | Follow):
                return None
            numbers = stage.weight.flatten()
            source = _source(numbers, starts, parameters)
            if source is None:
                return None
            parameter, places = source
            values = parameter.detach().flatten()[places.to(parameter.device)].reshape(stage.weight.shape)
            moved = nn.Parameter(values.contiguous(), parameter.requires_grad)
            held.append(Held(stage._replace(weight=moved), moved))
    used = sum(item.parameter.numel() for item in held if item.parameter is not None)
    return held if used == sum(parameter.numel() for parameter in parameters.values()) else None


def _source(
    numbers: Tensor, starts: dict[str, int], parameters: dict[str, nn.Parameter]
) -> tuple[nn.Parameter, Tensor] | None:
    """The parameter that these are the numbers of, each once, and where each entry comes from."""
    for name, start in starts.items():
        places = numbers - start
        if len(places) == parameters[name].numel():
            wanted = torch.arange(len(places), dtype=torch.float64)
            if torch.equal(places.sort().values, wanted):
                return parameters[name], places.long()
    return None


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
        whole = isinstance(stage, Blocks) or (stage.left == stage.right == 1)
        bias = layer.bias if last and whole else None
        groups = len(stage.weight) if isinstance(stage, Blocks) else 1
        conv = _conv(geometry, parameter, groups, bias)
        if isinstance(stage, Blocks) or whole:
            parts.append(conv)
        else:
            parts += [Slices(stage.left, stage.right), conv, Joined(stage.left, stage.right)]
        geometry = Geometry.pointwise(dims)
    return _together(layer, parts, dims)


def _inside(layer: InsideConv) -> nn.Module:
    """The factors at every pixel, with the taps after the first."""
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
