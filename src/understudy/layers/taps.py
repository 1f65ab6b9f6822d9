"""Convolutions whose taps stand by themselves, beside structured maps from channel to channel."""

from __future__ import annotations

import abc

from torch import Tensor

from understudy.transforms.stages import Product, State

from .execution import AUTO
from .geometry import DenseConv, Geometry
from .layer import Layer
from .pace import formed_work, is_whole_quicker, pace_of
from .steps import Convolve, Steps, Tapped

_WHOLE = "whole"  # not "formed": that is the map from channel to channel without the taps


class TappedConv(Layer):
    """A k×k convolution of a depthwise part and a transform.

    In evaluation without gradients its whole kernel, formed once, runs as one convolution where that is
    quicker, unless the execution says how it runs.
    """

    depthwise: DenseConv
    geometry: Geometry
    in_channels: int
    out_channels: int

    @abc.abstractmethod
    def pace(self, positions: int) -> float:
        """Roughly the nanoseconds of its parts in turn on so many output pixels."""

    def _all_steps(self, x: Tensor) -> Steps:
        geometry, positions = self.geometry, self.positions(x)
        if self.execution.in_inference != AUTO or geometry.padding_mode != "zeros":
            return super()._all_steps(x)
        whole = formed_work(self.in_channels, self.out_channels, geometry.area)
        if not is_whole_quicker(pace_of([whole], positions), self.pace(positions)):
            return super()._all_steps(x)
        (kernel,) = self._whole()
        assert isinstance(kernel, Product)
        shape = self.out_channels, self.in_channels, *geometry.kernel
        return (Convolve(geometry, kernel.weight.reshape(shape), self.bias, positions),)

    def _whole(self) -> State:
        """The whole kernel as a matrix, in inference made once."""
        return self._kept.made(self, _WHOLE, lambda: (Product(self.matrix()),))

    def _taps(self, positions: int) -> Tapped:
        return Tapped(self.depthwise, positions)
