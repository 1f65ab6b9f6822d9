"""A grouped convolution: a stand-in for every group, all of one shape, transform and knob."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from understudy.transforms import Transform
from understudy.transforms.stages import Product, State, is_plain

from .conv import Conv, merged_conv
from .execution import Execution
from .geometry import DenseConv, Geometry
from .inside import InsideConv
from .layer import Layer
from .separable import SeparableConv
from .steps import Convolve, Steps

GroupConv = Conv | SeparableConv | InsideConv


class Turn(NamedTuple):
    """One grouped convolution of those that a grouped stand-in is."""

    geometry: Geometry
    kernel: Tensor
    bias: Tensor | None
    groups: int


class GroupedConv(Layer):
    """Equal, consecutive slices of the channels, each through a structured convolution of its own."""

    def __init__(self, parts: Sequence[GroupConv], bias: Tensor | None = None) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.geometry, self.area = parts[0].geometry, parts[0].area
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.in_channels = sum(part.in_channels for part in parts)
        self.out_channels = sum(part.out_channels for part in parts)
        self.kernel_size, self.stride = self.geometry.kernel, self.geometry.stride
        self.padding, self.dilation = self.geometry.padding, self.geometry.dilation
        self.padding_mode = self.geometry.padding_mode
        self.groups = len(parts)

    @property
    def convs(self) -> list[GroupConv]:
        """The stand-ins of the groups, in the order of the channels."""
        return [part for part in self.parts if isinstance(part, GroupConv)]

    @property
    def transform(self) -> Transform:  # type: ignore[override]
        """That of the first group, which speaks for all but for its seed and weights."""
        return self.convs[0].transform

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """One of every group."""
        return tuple(part.transform for part in self.convs)

    @property
    def execution(self) -> Execution:
        """How every group runs, and whether the whole is recomputed."""
        return self.convs[0].execution

    @execution.setter
    def execution(self, wanted: Execution) -> None:
        for part in self.convs:
            part.execution = wanted
        self._kept.drop()

    @property
    def weight(self) -> Tensor:
        """The kernel, (out, in / groups, …)."""
        return torch.cat([part.weight for part in self.convs])

    def positions(self, x: Tensor) -> int:
        """Output pixels of the batch."""
        return x.shape[0] * math.prod(self.geometry.output_size(x))

    def keeps_much(self, positions: int) -> bool:
        """As its groups do."""
        return self.convs[0].keeps_much(positions)

    def prepare(self, positions: int) -> State:
        """The stages of the first group, then those of the next: equally many of each."""
        return tuple(itertools.chain.from_iterable(part.prepare(positions) for part in self.convs))

    def forward(self, input: Tensor) -> Tensor:
        """Apply to `(batch, in, …)` or `(in, …)`."""
        return self.geometry.batched(self._call, input, self.in_channels)

    def steps(self, state: State, positions: int) -> Steps | None:
        """Grouped convolutions in turn, their weights joined once, where all stages are plain."""
        if self.geometry.padding_mode != "zeros" or not all(is_plain(stage) for stage in state):
            return None
        return tuple(
            Convolve(turn.geometry, turn.kernel, turn.bias, positions, turn.groups)
            for turn in self.turns(state)
        )

    def run(self, state: State, x: Tensor) -> Tensor:
        """Plain stages of all groups are one grouped convolution; any others run group after group."""
        if all(is_plain(stage) for stage in state):
            for turn in self.turns(state):
                x = turn.geometry.convolve(x, turn.kernel, turn.bias, turn.groups)
            return x
        slices = zip(self.convs, self._states(state), x.chunk(self.groups, dim=1), strict=True)
        out = torch.cat([part.run(own, piece) for part, own, piece in slices], dim=1)
        if self.bias is None:
            return out
        return out + self.bias.to(out.dtype).reshape(-1, *(1 for _ in self.geometry.kernel))

    def _states(self, state: State) -> list[State]:
        """That of every group."""
        each = len(state) // self.groups
        return [state[place : place + each] for place in range(0, len(state), each)]

    def turns(self, state: State) -> Iterator[Turn]:
        """Matrices in turn: the first at every patch, the others at every pixel, the bias with the last."""
        pointwise = Geometry.pointwise(self.geometry.dims)
        turns = list(zip(*self._states(state), strict=True))  # one stage of every group
        taps = [part.depthwise.weight for part in self.convs if not isinstance(part, Conv)]
        place = 1 if isinstance(self.convs[0], InsideConv) else 0  # the stage before which the taps come
        if place == len(turns):  # formed: the kernel holds them
            taps = []
        geometry = pointwise if taps else self.geometry
        for number, turn in enumerate(turns):
            if taps and number == place:
                yield Turn(self.geometry, torch.cat(taps), None, sum(map(len, taps)))
            weight = torch.cat([stage.weight for stage in turn if isinstance(stage, Product)])
            kernel = weight.reshape(len(weight), -1, *geometry.kernel)
            yield Turn(geometry, kernel, self.bias if number == len(turns) - 1 else None, self.groups)
            geometry = pointwise

    def merged(self) -> DenseConv:
        """One dense grouped convolution."""
        return merged_conv(self.geometry, self.weight, self.bias, self.groups)

    def ideal_mult_adds(self, positions: int, pixels: int) -> int:
        """Those of all groups."""
        return sum(part.ideal_mult_adds(positions, pixels) for part in self.convs)
