"""A stand-in as plain PyTorch modules that hold exactly its parameters: what eager code and exporters know.

Where the stages of an order are the parameters themselves, they become convolutions, nn.Linear, reshapes and
batched products in turn, for all groups at once or for each by itself. What has no such order becomes one
product with a matrix that is computed from the parameters; or, fixed, with what was computed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from understudy.transforms.orders import FORMED
from understudy.transforms.stages import Blocks, Follow, Permute, Product, Scale

from .choosing import Purpose, chosen
from .conv import Conv
from .execution import Execution
from .geometry import Geometry
from .grouped import GroupConv, GroupedConv
from .held import Held, held_stages, is_held, together
from .inside import InsideConv
from .layer import Layer
from .linear import Linear
from .plain import (
    BlockLinear,
    Computed,
    Following,
    Joined,
    Lowered,
    Middle,
    Reorder,
    Scaled,
    SharedConv,
    Shifted,
    Slices,
    Split,
)
from .separable import SeparableConv

_EAGER = Purpose()


def lowered(layer: Layer, purpose: Purpose = _EAGER, positions: int | None = None) -> nn.Module:
    """The layer as plain modules, as its execution says; "auto" is chosen for purpose and positions.

    Where they are fixed, modules hold what is made of its parameters, if that is at most four times as much.
    In a file the layer itself stays where an order merges factors: a graph only has operations.
    """
    if isinstance(layer, Linear):
        made = _linear(layer, purpose, positions)
    else:
        assert isinstance(layer, GroupedConv | Conv | SeparableConv | InsideConv)
        parts = layer.convs if isinstance(layer, GroupedConv) else [layer]
        made = _convolution(layer, parts, purpose, positions)
    return made.train(layer.training)


def _linear(layer: Linear, purpose: Purpose, positions: int | None) -> nn.Module:
    order, held = chosen(layer, purpose, positions)
    if held is not None:
        return _as_linear(layer, _linears(layer, held))
    if purpose.fixed and is_held(layer.weight.numel(), layer.transforms):
        return layer.merged()
    if order != FORMED:
        return _in_the_graph(layer, order)
    return _as_linear(layer, [Computed([layer.transform], None, layer.bias)])


def _convolution(
    layer: Layer, parts: Sequence[GroupConv], purpose: Purpose, positions: int | None
) -> nn.Module:
    """One convolution, or those of all groups: as one where each stage of theirs is, else each by itself."""
    first, bias, geometry = parts[0], layer.bias, parts[0].geometry
    order, each = _stages(parts, purpose, positions)
    groups = [stages for stages in each if stages is not None]
    held = together(groups) if len(groups) == len(parts) else None
    if held is None and groups and len(parts) > 1 and not purpose.is_made_ahead:
        pieces = [_convolution(part, [part], purpose, positions) for part in parts]
        return Lowered(Split(pieces), *([] if bias is None else [_shifted(bias, geometry.dims)]))
    if held is None and purpose.fixed and is_held(layer.weight.numel(), layer.transforms):
        return layer.merged()
    if held is None and isinstance(first, InsideConv):
        return _in_the_graph(layer, FORMED)
    if held is None and order != FORMED and len(parts) == 1:
        return _in_the_graph(layer, order)
    taps = [] if isinstance(first, Conv) else [_taps(parts)]
    if taps:
        geometry = Geometry.pointwise(geometry.dims)
    if held is None:
        return Lowered(*taps, Computed([part.transform for part in parts], geometry, bias))
    made = _convolutions(geometry, held, bias)
    place = 1 if isinstance(first, InsideConv) else 0  # before which module the taps come
    return Lowered(*made[:place], *taps, *made[place:])


def _stages(
    parts: Sequence[GroupConv], purpose: Purpose, positions: int | None
) -> tuple[str, list[list[Held] | None]]:
    """The order of all groups, and its stages in each where modules can hold them."""
    inside = [part for part in parts if isinstance(part, InsideConv)]
    if inside:
        if purpose.is_made_ahead and inside[0].execution.in_inference == FORMED:
            return FORMED, [None for _ in inside]
        order = inside[0].transform.legal_orders[1].name  # the only one but "formed"
        return order, [held_stages(part.transform, order) for part in inside]
    at_pixels = [part.pointwise if isinstance(part, SeparableConv) else part for part in parts]
    found = [chosen(part, purpose, positions) for part in at_pixels if isinstance(part, Conv)]
    return found[0][0], [stages for _, stages in found]


def _in_the_graph(layer: Layer, order: str) -> Layer:
    """What merges its parameters in the graph."""
    kept = copy.deepcopy(layer)
    kept.execution = Execution(order=order, recompute=False)
    return kept


def _taps(parts: Sequence[GroupConv]) -> nn.Module:
    """The depthwise convolutions of all groups as one."""
    found = [part.depthwise for part in parts if not isinstance(part, Conv)]
    if len(found) == 1:
        return copy.deepcopy(found[0])
    weight = torch.cat([each.weight.detach() for each in found])
    weight.requires_grad_(any(each.weight.requires_grad for each in found))
    return _conv(parts[0].geometry, weight.flatten(1), len(weight), None)


def _convolutions(geometry: Geometry, held: Sequence[Held], bias: Tensor | None) -> list[nn.Module]:
    """The first stage with the kernel, the others at every pixel; the bias with the last that takes it."""
    parts: list[nn.Module] = []
    dims, unused = geometry.dims, bias
    for place, (stage, parameter) in enumerate(held):
        with_last = bias if place == len(held) - 1 else None
        if isinstance(stage, Permute):
            parts.append(Reorder(stage, 1))
            continue
        assert parameter is not None
        if isinstance(stage, Scale):
            parts.append(Scaled(parameter, dims))
            continue
        if isinstance(stage, Follow):
            parts.append(Following(_conv(geometry, parameter, 1, None), stage.places, 1))
            continue
        assert isinstance(stage, Product | Blocks)
        if isinstance(stage, Product) and stage.right > 1:
            conv = _conv(geometry, parameter, 1, None)
            parts += [Slices(stage.left, stage.right), conv, Joined(stage.left, stage.right)]
        else:
            if isinstance(stage, Product) and stage.left > 1:
                parts.append(SharedConv(geometry, parameter, stage.left, with_last))
            else:
                groups = len(stage.weight) if isinstance(stage, Blocks) else 1
                parts.append(_conv(geometry, parameter, groups, with_last))
            unused = None if with_last is not None else unused
        geometry = Geometry.pointwise(dims)
    return parts if unused is None else [*parts, _shifted(unused, dims)]


def _conv(geometry: Geometry, parameter: Tensor, groups: int, bias: Tensor | None) -> nn.Module:
    rows, columns = math.prod(parameter.shape[:-1]), parameter.shape[-1] // geometry.area
    conv = geometry.dense(
        columns * groups, rows, bias=bias is not None, groups=groups, device=torch.device("meta")
    )
    kernel = parameter.detach().reshape(rows, columns, *geometry.kernel)
    conv.weight = nn.Parameter(kernel, parameter.requires_grad)
    if bias is not None:
        conv.bias = _bias(bias)
    return conv


def _bias(bias: Tensor) -> nn.Parameter:
    return nn.Parameter(bias.detach().clone(), bias.requires_grad)


def _shifted(bias: Tensor, dims: int) -> Shifted:
    return Shifted(_bias(bias), dims)


def _linears(layer: Linear, held: Sequence[Held]) -> list[nn.Module]:
    parts: list[nn.Module] = []
    for stage, parameter in held:
        if isinstance(stage, Permute):
            parts.append(Reorder(stage, -1))
            continue
        assert parameter is not None
        if isinstance(stage, Blocks):
            parts.append(BlockLinear(parameter))
        elif isinstance(stage, Scale):
            parts.append(Scaled(parameter, 0))
        elif isinstance(stage, Follow):
            (inner,) = _products(Product(parameter), parameter)
            parts.append(Following(inner, stage.places, -1))
        else:
            assert isinstance(stage, Product)
            parts += _products(stage, parameter)
    if layer.bias is not None and isinstance(parts[-1], nn.Linear):
        parts[-1].bias = _bias(layer.bias)
    elif layer.bias is not None:
        parts.append(_shifted(layer.bias, 0))
    return parts


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


def _as_linear(layer: Linear, parts: Sequence[nn.Module]) -> Lowered:
    """The parts in turn, with what is asked of a linear layer."""
    made = Lowered(*parts)
    made.in_features, made.shell = layer.transform.in_features, layer.shell
    return made
