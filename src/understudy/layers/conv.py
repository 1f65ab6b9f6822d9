"""A convolution around a transform of its unfolded patches."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from understudy.transforms import Transform
from understudy.transforms.stages import Blocks, Product, State

from .geometry import DenseConv, Geometry, is_channels_last
from .layer import Layer, fill_
from .steps import AtPixels, Convolve, Steps, applies_stages, at_pixels, at_rows


class Conv(Layer):
    """A convolution whose weight, as a matrix out × in·taps, is structured."""

    def __init__(self, transform: Transform, geometry: Geometry, bias: Tensor | None = None) -> None:
        super().__init__()
        self.transform = transform
        self.geometry, self.area = geometry, geometry.area
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.in_channels = transform.in_features // geometry.area
        self.out_channels = transform.out_features
        self.kernel_size, self.stride = geometry.kernel, geometry.stride
        self.padding, self.dilation, self.groups = geometry.padding, geometry.dilation, 1
        self.padding_mode = geometry.padding_mode

    @property
    def weight(self) -> Tensor:
        """The kernel, (out, in, …)."""
        return self._kernel(self.transform.matrix())

    def _kernel(self, matrix: Tensor) -> Tensor:
        return matrix.reshape(-1, self.in_channels, *self.geometry.kernel)

    def positions(self, x: Tensor) -> int:
        """Output pixels of the batch."""
        return x.shape[0] * math.prod(self.geometry.output_size(x))

    def keeps_much(self, positions: int) -> bool:
        """As its transform does; and where patches are unfolded, every pixel is kept `area` times."""
        order = self.execution.choose(self.transform, positions, self.area)
        return self.transform.keeps_much or (self.area > 1 and not order.convolves(self.area))

    def forward(self, input: Tensor) -> Tensor:
        """Apply to `(batch, in, …)` or `(in, …)`."""
        return self.geometry.batched(self._call, input, self.in_channels)

    def run(self, state: State, x: Tensor) -> Tensor:
        """The first stage takes the kernel where it can; plain stages after it are 1×1 convolutions."""
        # Runtimes are quicker with groups of a convolution than with slices of channels; eager is not.
        products = leading_products(state, sliced=torch.compiler.is_exporting())
        if len(products) == len(state) and products[0].run % self.area == 0:
            return self._convolve(products, x)
        if self.area == 1:
            return self._run_stages(state, self.geometry.pixels(x), x)
        first = state[0]
        if isinstance(first, Product | Blocks) and first.run and first.run % self.area == 0:
            return self._run_stages(state[1:], self._first(first, x), x)
        return self._run_stages(state, self.geometry.patches(x), x)

    def _first(self, stage: Product | Blocks, x: Tensor) -> Tensor:
        """A first stage as a convolution: slices of channels as images of their own, or as groups."""
        kernel = stage.weight.reshape(-1, stage.run // self.area, *self.geometry.kernel)
        if isinstance(stage, Blocks):
            return self.geometry.convolve(x, kernel, groups=len(stage.weight))
        slices = x.reshape(-1, kernel.shape[1], *x.shape[2:])  # (batch · left, …)
        out = self.geometry.convolve(slices, kernel)
        return out.reshape(x.shape[0], -1, *out.shape[2:])

    def _convolve(self, products: list[Product], x: Tensor) -> Tensor:
        """Matrices in turn: the first at every patch, the others at every pixel, the bias with the last."""
        geometry, pointwise = self.geometry, Geometry.pointwise(self.geometry.dims)
        *others, last = products
        for product in others:
            x = geometry.convolve_slices(x, product.weight, None, product.left)
            geometry = pointwise
        return geometry.convolve_slices(x, last.weight, self.bias, last.left)

    def steps(self, state: State, positions: int) -> Steps | None:
        """One convolution after another, where all stages are plain; those at every pixel are one step."""
        geometry, run = self.geometry, partial(self.run, state)
        weights = [product.weight for product in leading_products(state)]
        if len(weights) < len(state):
            if geometry != Geometry.pointwise(2) or self.execution.layout == "columns":
                return None
            rows = at_rows(state, self.bias, positions)
            return (AtPixels(rows, self.out_channels, run, applies_stages(self.transform)),)
        if geometry.padding_mode != "zeros":
            return None
        if geometry == Geometry.pointwise(geometry.dims):
            return at_pixels(weights, self.bias, positions, geometry.dims)
        weight, *others = weights
        kernel = weight.reshape(len(weight), -1, *geometry.kernel)
        first = Convolve(geometry, kernel, None if others else self.bias, positions)
        return first, *(at_pixels(others, self.bias, positions, geometry.dims) if others else ())

    def _run_stages(self, state: State, pixels: Tensor, x: Tensor) -> Tensor:
        """Run stages on (batch, channels, pixels…), in that memory's layout; the output has that of `x`."""
        size = self.geometry.output_size(x)
        if is_channels_last(pixels):
            rows = self.execution.apply(self.transform, state, pixels.movedim(1, -1), rows=True)
            out = rows.movedim(-1, 1)
        else:
            columns = self.execution.apply(self.transform, state, pixels.flatten(2), rows=False)
            out = columns.reshape(x.shape[0], self.out_channels, *size)
        layout = torch.channels_last if is_channels_last(x) else torch.contiguous_format
        out = out.contiguous(memory_format=layout)
        return out if self.bias is None else out + self.bias.to(out.dtype).reshape(-1, *(1 for _ in size))

    def merged(self) -> DenseConv:
        """The same map as nn.Conv1d, nn.Conv2d or nn.Conv3d."""
        return merged_conv(self.geometry, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Show the geometry when a model is printed."""
        geometry, execution = self.geometry, super().extra_repr()
        text = f"kernel={geometry.kernel}, stride={geometry.stride}, padding={geometry.padding}"
        return f"{text}, {execution}" if execution else text


def leading_products(state: State, *, sliced: bool = False) -> list[Product]:
    """The leading stages of one matrix over all channels or, `sliced`, over each of their slices."""
    found: list[Product] = []
    for stage in state:
        if not isinstance(stage, Product) or not (stage.plain or (sliced and stage.run)):
            break
        found.append(stage)
    return found


def merged_conv(geometry: Geometry, weight: Tensor, bias: Tensor | None, groups: int = 1) -> DenseConv:
    """A plain convolution with these weights."""
    conv = geometry.dense(
        groups * weight.shape[1],
        weight.shape[0],
        bias=bias is not None,
        groups=groups,
        device=weight.device,
        dtype=weight.dtype,
    )
    fill_(conv, weight, bias)
    return conv
