"""A depthwise convolution, then a structured pointwise one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from understudy.transforms import Transform
from understudy.transforms.stages import State

from .conv import Conv, merged_conv
from .execution import Execution
from .geometry import DenseConv, Geometry
from .pace import pace_of, quickest, taps_work
from .steps import Steps
from .taps import TappedConv


class SeparableConv(TappedConv):
    """A depthwise k×k convolution without bias, then a structured pointwise one."""

    def __init__(self, transform: Transform, geometry: Geometry, bias: Tensor | None = None) -> None:
        super().__init__()
        self.depthwise = drawn_depthwise(geometry, transform.in_features, transform)
        self.pointwise = Conv(transform, Geometry.pointwise(geometry.dims), bias)
        self.geometry = geometry
        self.in_channels, self.out_channels = transform.in_features, transform.out_features
        self.kernel_size, self.stride = geometry.kernel, geometry.stride
        self.padding, self.dilation, self.groups = geometry.padding, geometry.dilation, 1
        self.padding_mode = geometry.padding_mode

    @property
    def transform(self) -> Transform:  # type: ignore[override]
        """The pointwise map."""
        return self.pointwise.transform

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]
        """The bias of the pointwise map."""
        return self.pointwise.bias

    @property
    def execution(self) -> Execution:
        """How the pointwise map runs, and whether the whole is recomputed."""
        return self.pointwise.execution

    @execution.setter
    def execution(self, wanted: Execution) -> None:
        self.pointwise.execution = wanted
        self._kept.drop()

    @property
    def weight(self) -> Tensor:
        """W[o,i,…] = pointwise[o,i] · depthwise[i,…]."""
        return self.pointwise.weight * self.depthwise.weight.transpose(0, 1)

    def positions(self, x: Tensor) -> int:
        """Output pixels of the batch."""
        return x.shape[0] * math.prod(self.geometry.output_size(x))

    def keeps_much(self, positions: int) -> bool:  # noqa: ARG002
        """The image between the two parts."""
        return True

    def forward(self, input: Tensor) -> Tensor:
        """Apply to `(batch, in, …)` or `(in, …)`."""
        return self.geometry.batched(self._call, input, self.in_channels)

    def run(self, state: State, x: Tensor) -> Tensor:
        """The taps, then the pointwise map."""
        return self.pointwise.run(state, self.depthwise(x))

    def steps(self, state: State, positions: int) -> Steps | None:
        """The taps, then those of the pointwise map."""
        pointwise = self.pointwise.steps(state, positions)
        return None if pointwise is None else (self._taps(positions), *pointwise)

    def merged(self) -> DenseConv:
        """One dense k×k convolution."""
        return merged_conv(self.geometry, self.weight, self.bias)

    def pace(self, positions: int) -> float:
        """The depthwise taps, then the quickest order of the pointwise map."""
        transform, shape = self.transform, (self.in_channels, self.out_channels)
        _, pointwise = quickest(type(transform), shape, transform.knob, transform.legal_orders, positions)
        return pace_of([taps_work(self.in_channels, self.geometry.area)], positions) + pointwise

    def ideal_mult_adds(self, positions: int, pixels: int) -> int:
        """The depthwise taps, then the pointwise map."""
        return positions * self.in_channels * self.geometry.area + super().ideal_mult_adds(positions, pixels)


@torch.no_grad()
def drawn_depthwise(geometry: Geometry, channels: int, transform: Transform) -> DenseConv:
    """A depthwise convolution; its taps, drawn from the transform's seed, keep their input's variance."""
    parameter = next(transform.parameters())
    made = geometry.dense(channels, channels, groups=channels, device=parameter.device, dtype=parameter.dtype)
    if not made.weight.is_meta:
        generator = torch.Generator().manual_seed(transform.seed + 1)
        made.weight.copy_(torch.randn(made.weight.shape, generator=generator) / math.sqrt(geometry.area))
    return made
