"""A transposed convolution whose map is a layer that it calls, so that it can be substituted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from understudy._util.modules import adopt
from understudy.transforms.stages import is_plain

from .conv import Conv, leading_products
from .geometry import DenseConv, Geometry
from .grouped import GroupedConv
from .plain import Lowered

Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
TAPS = "taps"  # what the layer of an open one is called
# By their dimensions, less one.
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FUNCTIONS: tuple[Callable[..., Tensor], ...] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


class Spread(_ConvTransposeNd):
    """A transposed convolution taken apart: `taps` maps a pixel to all that it gives, at every pixel.

    What neighbours give to the same place of the output is summed, and the bias added: it computes the same.
    """

    taps: nn.Module  # in → out · area, 1×1

    def __init__(self, like: Transposed) -> None:
        """Made of a layer's own tensors; the weight of one with groups is laid out anew."""
        nn.Module.__init__(self)
        self.in_channels, self.out_channels, self.groups = like.in_channels, like.out_channels, like.groups
        self.kernel_size, self.stride, self.dilation = like.kernel_size, like.stride, like.dilation
        self.padding, self.output_padding = like.padding, like.output_padding
        self.padding_mode, self.transposed = like.padding_mode, True
        self.register_parameter("bias", like._parameters["bias"])
        self.add_module(TAPS, self._convolution(like.get_parameter("weight")))
        adopt(like, self)

    def _convolution(self, kernel: nn.Parameter) -> nn.Module:
        """The 1×1 convolution of a transposed convolution's kernel, (in, out / groups, …)."""
        dims, rows = len(self.kernel_size), self.out_channels * math.prod(self.kernel_size)
        made = Geometry.pointwise(dims).dense(
            self.in_channels, rows, groups=self.groups, device=torch.device("meta")
        )
        with torch.inference_mode(kernel.is_inference()):  # only there can views of such a tensor be made
            slices = kernel.detach().reshape(self.groups, self.in_channels // self.groups, -1)
            made.weight = nn.Parameter(slices.mT.reshape(made.weight.shape), kernel.requires_grad)
        return made

    def _kernel(self, weight: Tensor, groups: int) -> Tensor:
        """And back, of a weight (out · area, in / groups, …)."""
        per_group = weight.reshape(groups, len(weight) // groups, -1)
        return per_group.mT.reshape(groups * per_group.shape[2], -1, *self.kernel_size)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The kernel, (in, out / groups, …), formed for whoever reads it."""
        weight = self.taps.weight
        assert isinstance(weight, Tensor)
        return self._kernel(weight, self.groups)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """As nn.ConvTranspose1d, 2d or 3d: apply to `(batch, in, …)` or `(in, …)`."""
        stride, kernel, dilation = list(self.stride), list(self.kernel_size), list(self.dilation)
        extra = self._output_padding(input, output_size, stride, self._cut, kernel, len(kernel), dilation)
        pointwise = Geometry.pointwise(len(self.kernel_size))
        return pointwise.batched(partial(self._spread, extra=extra), input, self.in_channels)

    @property
    def _cut(self) -> list[int]:
        """How many pixels of what is given are no part of the output, at each end of each axis."""
        return [int(size) for size in self.padding]

    def _spread(self, x: Tensor, extra: list[int]) -> Tensor:
        """On a batch, with so many more pixels at the end of each axis than need be."""
        weights = self._matrices(x)
        if weights:
            return self._in_turn(weights, x, extra)
        whole = self._summed(self.taps(x))
        edges = [(-cut, more - cut) for cut, more in zip(self._cut, extra, strict=True)]
        if any(itertools.chain.from_iterable(edges)):
            whole = F.pad(whole, list(itertools.chain.from_iterable(reversed(edges))))
        if self.bias is None:
            return whole
        return whole + self.bias.to(whole.dtype).reshape(-1, *(1 for _ in self.kernel_size))

    def _matrices(self, x: Tensor) -> list[tuple[Tensor, int]]:
        """The map as matrices in turn, and their groups; none if it is not, or its outputs are looked at."""
        layer = self.taps
        if not isinstance(layer, Conv | GroupedConv) or layer._forward_hooks or layer._forward_pre_hooks:
            return []
        state = layer.prepare(layer.positions(x))
        if not all(is_plain(stage) for stage in state):
            return []
        if isinstance(layer, GroupedConv):
            return [(turn.kernel.flatten(1), turn.groups) for turn in layer.turns(state)]
        return [(product.weight, 1) for product in leading_products(state)]

    def _in_turn(self, weights: list[tuple[Tensor, int]], x: Tensor, extra: list[int]) -> Tensor:
        """Matrices at every pixel, the last of them as the kernel: what it gives is never held apart."""
        pointwise = Geometry.pointwise(len(self.kernel_size))
        *others, (last, last_groups) = weights
        for weight, groups in others:
            x = pointwise.convolve(x, weight.reshape(*weight.shape, *pointwise.kernel), groups=groups)
        run, kernel = _FUNCTIONS[pointwise.dims - 1], self._kernel(last, last_groups)
        return run(x, kernel, self.bias, self.stride, self.padding, extra, last_groups, self.dilation)

    def _summed(self, values: Tensor) -> Tensor:
        """(batch, out · area, …) → (batch, out, …): each value added at its place."""
        sides = tuple(
            (size - 1) * step + gap * (taps - 1) + 1
            for size, step, gap, taps in zip(
                values.shape[2:], self.stride, self.dilation, self.kernel_size, strict=True
            )
        )
        batch, out, last = values.shape[0], self.out_channels, slice(-2, None)
        if len(sides) == 1:
            kernel, gap, step = ((1, *one) for one in (self.kernel_size, self.dilation, self.stride))
            return F.fold(values, (1, *sides), kernel, gap, 0, step).squeeze(2)
        if len(sides) == 2:
            return F.fold(values.flatten(2), sides, self.kernel_size, self.dilation, 0, self.stride)
        depth, kernel = values.shape[2], self.kernel_size
        planes = values.unflatten(1, (out * kernel[0], -1)).movedim(3, 1)  # (batch, depth, out·deep, flat, …)
        flat = planes.flatten(0, 1).flatten(1, 2).flatten(2)
        rows = F.fold(flat, sides[last], kernel[last], self.dilation[last], 0, self.stride[last])
        deep = rows.reshape(batch, depth, out * kernel[0], -1).transpose(1, 2).flatten(2)
        summed = F.fold(
            deep,
            (sides[0], sides[1] * sides[2]),
            (kernel[0], 1),
            (self.dilation[0], 1),
            0,
            (self.stride[0], 1),
        )
        return summed.reshape(batch, out, *sides)

    def closed(self) -> Transposed:
        """The same as nn.ConvTranspose1d, 2d or 3d; `taps` is a plain layer."""
        assert isinstance(self.taps, DenseConv)
        made = self._transposed(self.taps)
        adopt(self, made)
        return made

    def lowered(self) -> nn.Module:
        """The same with the last of the modules that `taps` was lowered to as the kernel, where it can be."""
        *others, last = self.taps if isinstance(self.taps, Lowered) else [self.taps]
        if not isinstance(last, DenseConv) or last.bias is not None or self.out_channels % last.groups:
            return self
        made = LoweredSpread(*others, self._transposed(last))
        adopt(self, made)
        return made

    def _transposed(self, conv: DenseConv) -> Transposed:
        """A transposed convolution with the weight of a 1×1 convolution to out · area channels."""
        made = TRANSPOSED[len(self.kernel_size) - 1](
            conv.in_channels,
            self.out_channels,
            self.kernel_size,  # type: ignore[arg-type]
            self.stride,  # type: ignore[arg-type]
            self.padding,  # type: ignore[arg-type]
            self.output_padding,  # type: ignore[arg-type]
            groups=conv.groups,
            bias=self.bias is not None,
            dilation=self.dilation,  # type: ignore[arg-type]
            device="meta",
        )
        kernel = self._kernel(conv.weight.detach(), conv.groups).contiguous()
        made.weight = nn.Parameter(kernel, conv.weight.requires_grad)
        made.bias = self.bias
        return made


class LoweredSpread(Lowered):
    """Plain modules in turn, the last a transposed convolution."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """As nn.ConvTranspose1d, 2d or 3d."""
        *others, last = self
        for part in others:
            input = part(input)
        out: Tensor = last(input, output_size)
        return out
