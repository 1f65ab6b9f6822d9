"""A structured 1×1 way in, a depthwise k×k convolution between the factors, a structured 1×1 way out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from understudy.transforms.inside import inside_matrix
from understudy.transforms.orders import FORMED
from understudy.transforms.stages import Product, Stage, State, is_plain
from understudy.transforms.two_factors import TwoFactors, Waist

from .conv import merged_conv
from .geometry import DenseConv, Geometry, is_channels_last
from .pace import inside_pace
from .separable import drawn_depthwise
from .steps import Convolve, Steps, at_pixels
from .taps import TappedConv


class InsideConv(TappedConv):
    """in → waist (1×1, at every input pixel), depthwise k×k with the stride on the waist, → out (1×1).

    Where its execution says "formed", the whole kernel runs as one convolution, in training too.
    """

    transform: TwoFactors

    def __init__(self, transform: TwoFactors, geometry: Geometry, bias: Tensor | None = None) -> None:
        super().__init__()
        self.transform, self.geometry = transform, geometry
        self.depthwise = drawn_depthwise(geometry, self.waist.width, transform)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.in_channels, self.out_channels = transform.in_features, transform.out_features
        self.kernel_size, self.stride = geometry.kernel, geometry.stride
        self.padding, self.dilation, self.groups = geometry.padding, geometry.dilation, 1
        self.padding_mode = geometry.padding_mode

    @property
    def waist(self) -> Waist:
        """What lies between the two factors."""
        transform = self.transform
        return transform.waist(transform.in_features, transform.out_features, transform.knob)

    @property
    def weight(self) -> Tensor:
        """W[o,i,…] = Σ over the waist w of second[o,w] depthwise[w,…] first[w,i]."""
        matrix = inside_matrix(self.transform, self.depthwise.weight.flatten(1))
        return matrix.reshape(self.out_channels, self.in_channels, *self.geometry.kernel)

    def positions(self, x: Tensor) -> int:
        """Output pixels of the batch."""
        return x.shape[0] * math.prod(self.geometry.output_size(x))

    def keeps_much(self, positions: int) -> bool:  # noqa: ARG002
        """Where the waist is wider than the input."""
        return self.waist.width > self.in_channels

    def prepare(self, positions: int) -> State:  # noqa: ARG002
        """The factors; or the kernel as one matrix, where that was set."""
        inference = not (self.training or torch.is_grad_enabled())
        if (self.execution.in_inference if inference else self.execution.order) == FORMED:
            return self._whole() if inference else (Product(self.matrix()),)
        return self.transform.prepare(self.transform.legal_orders[1].name)  # the only one but "formed"

    def forward(self, input: Tensor) -> Tensor:
        """Apply to `(batch, in, …)` or `(in, …)`."""
        return self.geometry.batched(self._call, input, self.in_channels)

    def run(self, state: State, x: Tensor) -> Tensor:
        """The first stage, the taps, the other stages; the bias with the last where that is plain."""
        if len(state) == 1:
            return self.geometry.convolve(x, self._kernel(state[0]), self.bias)
        last_layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
        x = self.depthwise(self._at_pixels(state[0], x))
        for stage in state[1:-1]:
            x = self._at_pixels(stage, x)
        x = self._at_pixels(state[-1], x, self.bias).contiguous(memory_format=last_layout)
        if self.bias is None or is_plain(state[-1]):
            return x
        return x + self.bias.to(x.dtype).reshape(-1, *(1 for _ in self.geometry.kernel))

    def steps(self, state: State, positions: int) -> Steps | None:
        """One convolution after the other, where all stages are plain."""
        if len(state) == 1:
            if self.geometry.padding_mode != "zeros":
                return None
            return (Convolve(self.geometry, self._kernel(state[0]), self.bias, positions),)
        if not all(is_plain(stage) for stage in state):
            return None
        first, *others = (stage.weight for stage in state if isinstance(stage, Product))
        coming = at_pixels([first], None, self._pixels(positions), self.geometry.dims)
        going = at_pixels(others, self.bias, positions, self.geometry.dims)
        return *coming, self._taps(positions), *going

    def _kernel(self, formed: Stage) -> Tensor:
        assert isinstance(formed, Product)
        return formed.weight.reshape(self.out_channels, self.in_channels, *self.geometry.kernel)

    def _at_pixels(self, stage: Stage, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """A stage at every pixel of (batch, channels, …), in its memory's layout; a plain one with a bias."""
        if is_plain(stage):
            pointwise = Geometry.pointwise(self.geometry.dims)
            return pointwise.convolve(x, _pointwise_kernel(stage, pointwise), bias)
        layout = self.execution.layout
        if layout == "rows" or (layout == "auto" and is_channels_last(x)):
            pixels = x.movedim(1, -1)
            made = stage.rows(pixels.reshape(-1, x.shape[1]))
            return made.reshape(*pixels.shape[:-1], made.shape[1]).movedim(-1, 1)
        made = stage.columns(x.flatten(2))
        return made.reshape(len(x), made.shape[1], *x.shape[2:])

    def merged(self) -> DenseConv:
        """One dense k×k convolution."""
        return merged_conv(self.geometry, self.weight, self.bias)

    def pace(self, positions: int) -> float:
        """The factors, and the taps between them."""
        shape = self.in_channels, self.out_channels
        return inside_pace(self.waist, shape, self.geometry.area, self._pixels(positions), positions)

    def _pixels(self, positions: int) -> int:
        """Of the input, about, for so many of the output."""
        return positions * math.prod(self.stride)

    def ideal_mult_adds(self, positions: int, pixels: int) -> int:
        """The way in at every input pixel, the taps and the way out at every output pixel."""
        waist = self.waist
        return pixels * waist.before + positions * (waist.width * self.geometry.area + waist.after)


def _pointwise_kernel(stage: Stage, pointwise: Geometry) -> Tensor:
    assert isinstance(stage, Product)
    return stage.weight.reshape(*stage.weight.shape, *pointwise.kernel)
