"""What a prepared call does: functions of its input in turn, in inference with weights laid out ahead."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as modules

from understudy._util.packing import Packs, can_meet, can_pack
from understudy._util.processor import products_lag
from understudy.transforms import Transform
from understudy.transforms.products import MANY, rows_times
from understudy.transforms.stages import Blocks, Product, Stage, State, few_rows

from .geometry import Geometry, is_channels_last

Step = Callable[[Tensor], Tensor]
Steps = tuple[Step, ...]

# Mult-adds up to which a processor is quicker with a product of matrices than with a 1×1 convolution, where
# channels lie side by side: the convolution lays its weight out anew at every call.
_SMALL = 64_000_000
# Mult-adds from which calls with weights laid out ahead are quicker than those that lay them out: products,
# where others lag and where they do not, and convolutions that have no groups.
_PACKED, _PACKED_WHERE_PRODUCTS_ARE_QUICK, _PACKED_CONVOLUTION = 1_200_000, 16_000_000, 1_000_000
# And from which blocks are sooner convolved than multiplied, where products lag.
_PACKED_BLOCKS = 1_500_000
# Those that all modules call.
_GLOBAL_HOOKS = (modules._global_forward_pre_hooks, modules._global_forward_hooks)


class Weighted(abc.ABC):
    """A step that knows its weights."""

    @abc.abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """The step's part of a call."""

    @abc.abstractmethod
    def packed(self, packs: Packs) -> Step:
        """The same for many calls, its weights laid out ahead where that is quicker."""


@dataclasses.dataclass(frozen=True)
class AtRows(Weighted):
    """A matrix at so many vectors, which are rows, and a bias."""

    matrix: Tensor
    bias: Tensor | None
    positions: int

    @property
    def mult_adds(self) -> int:
        """Of one call."""
        return self.positions * self.matrix.numel()

    def __call__(self, x: Tensor) -> Tensor:
        """x · matrixᵀ + bias."""
        if self.mult_adds < MANY:
            return F.linear(x, self.matrix, self.bias)
        return rows_times(x, self.matrix, self.bias)

    def packed(self, packs: Packs) -> Step:
        """From where it pays; smaller ones are called without a detour."""
        least = _PACKED if products_lag() else _PACKED_WHERE_PRODUCTS_ARE_QUICK
        if self.mult_adds >= least and can_pack(self.matrix, bias=self.bias):
            run = packs.product(self.matrix, self.bias)
            return lambda x: run(x) if can_meet(x) else self(x)
        return self if self.mult_adds >= MANY else self._bare()

    def _bare(self) -> Step:
        """With the matrix as it is multiplied: turned around once, not in every call."""
        matrix, turned, bias = self.matrix, self.matrix.t(), self.bias
        times, linear, add_times = torch.matmul, F.linear, torch.addmm
        if bias is None:
            return lambda x: times(x, turned)
        return lambda x: add_times(bias, x, turned) if x.dim() == 2 else linear(x, matrix, bias)


@dataclasses.dataclass(frozen=True)
class Convolve(Weighted):
    """A convolution to so many pixels; its padding is of zeros."""

    geometry: Geometry
    kernel: Tensor
    bias: Tensor | None
    pixels: int
    groups: int = 1

    def __call__(self, x: Tensor) -> Tensor:
        """As torch.nn.functional.conv2d, or for as many dimensions as there are."""
        return self.geometry.convolve(x, self.kernel, self.bias, self.groups)

    def packed(self, packs: Packs) -> Step:
        """For images whose channels lie side by side; small dense ones run without the library."""
        geometry = self.geometry
        is_small = self.groups == 1 and self.pixels * self.kernel.numel() < _PACKED_CONVOLUTION
        if geometry.dims != 2 or is_small or not self.pixels or not can_pack(self.kernel, bias=self.bias):
            return self
        edges = geometry.edges
        if edges[0] != edges[1] or edges[2] != edges[3]:
            return self
        run: Step | None = None

        def convolve(x: Tensor) -> Tensor:
            nonlocal run
            if not (is_channels_last(x) and can_meet(x)):
                return self(x)
            if run is None and min(geometry.output_size(x)) < 1:
                return self(x)  # which says what is wrong
            if run is None:
                run = packs.convolution(
                    self.kernel,
                    self.bias,
                    x.shape,
                    stride=geometry.stride,
                    padding=(edges[2], edges[0]),
                    dilation=geometry.dilation,
                    groups=self.groups,
                )
                run = run or self
            return run(x)

        return convolve


@dataclasses.dataclass(frozen=True)
class StageAtRows(Weighted):
    """A stage of a transform at so many vectors, which are rows."""

    stage: Stage
    positions: int

    def __call__(self, x: Tensor) -> Tensor:
        """As the stage itself does."""
        return self.stage.rows(x)

    def packed(self, packs: Packs) -> Step:
        """Slices as rows of one product; many blocks as groups of a convolution."""
        if isinstance(self.stage, Product) and self.stage.right == 1:
            return self._in_slices(self.stage, packs)
        if isinstance(self.stage, Blocks):
            return self._in_groups(self.stage, packs)
        return self.stage.rows

    def _in_slices(self, product: Product, packs: Packs) -> Step:
        (rows, columns), left = product.weight.shape, product.left
        times = AtRows(product.weight, None, left * self.positions).packed(packs)
        if left == 1:
            return times
        return lambda x: times(x.reshape(-1, columns)).reshape(-1, left * rows)

    def _in_groups(self, blocks: Blocks, packs: Packs) -> Step:
        groups, rows, columns = blocks.weight.shape
        least = _PACKED_BLOCKS if products_lag() else few_rows(training=False) * blocks.weight.numel()
        if self.positions * blocks.weight.numel() <= least or not can_pack(blocks.weight):
            return blocks.rows
        kernel = blocks.weight.reshape(groups * rows, columns, 1, 1)
        convolve = Convolve(Geometry.pointwise(2), kernel, None, self.positions, groups).packed(packs)

        def convolved(x: Tensor) -> Tensor:
            image = x.reshape(1, 1, -1, groups * columns).permute(0, 3, 1, 2)
            return convolve(image).permute(0, 2, 3, 1).reshape(-1, groups * rows)

        return convolved


@dataclasses.dataclass(frozen=True)
class Shift(Weighted):
    """A bias at every vector; vectors are rows."""

    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """x + bias."""
        return x + self.bias.to(x.dtype)

    def packed(self, packs: Packs) -> Step:  # noqa: ARG002
        """There is nothing to lay out."""
        return self


def at_rows(state: State, bias: Tensor | None, positions: int) -> tuple[Weighted, ...]:
    """Stages in turn at so many vectors, which are rows, and a bias."""
    *others, last = state
    steps = [StageAtRows(stage, positions) for stage in others]
    if isinstance(last, Product) and last.plain:
        return *steps, AtRows(last.weight, bias, positions)
    return *steps, StageAtRows(last, positions), *(() if bias is None else (Shift(bias),))


def applies_stages(transform: Transform) -> bool:
    """Whether a transform runs as its stages in turn, not in a way of its own."""
    return type(transform).apply_rows is Transform.apply_rows


@dataclasses.dataclass(frozen=True)
class AtVectors(Weighted):
    """Steps at rows for vectors along the last axis of any tensor, of so many features when they come out."""

    rows: Sequence[Weighted]
    width: int
    otherwise: Step  # the same, not step by step

    def __call__(self, x: Tensor) -> Tensor:
        """All at once."""
        return self.otherwise(x)

    def packed(self, packs: Packs) -> Step:
        """Step by step."""
        steps, width = [each.packed(packs) for each in self.rows], self.width

        def run(x: Tensor) -> Tensor:
            rows = x.reshape(-1, x.shape[-1])
            for step in steps:
                rows = step(rows)
            return rows.reshape(*x.shape[:-1], width)

        return run


@dataclasses.dataclass(frozen=True)
class AtPixels(Weighted):
    """Steps at rows for the pixels of images whose channels lie side by side; so many channels come out."""

    rows: Sequence[Weighted]
    width: int
    otherwise: Step  # for images of any layout
    is_sooner: bool  # than the other way, where no weights are laid out ahead

    def __call__(self, x: Tensor) -> Tensor:
        """For images of any layout."""
        return self.otherwise(x)

    def packed(self, packs: Packs) -> Step:
        """In rows where the image lies so."""
        if not self.is_sooner:
            return self.otherwise
        steps, width, otherwise = [each.packed(packs) for each in self.rows], self.width, self.otherwise

        def run(x: Tensor) -> Tensor:
            if not is_channels_last(x) or not x.is_cpu:
                return otherwise(x)
            batch, channels, height, wide = x.shape
            rows = x.permute(0, 2, 3, 1).reshape(-1, channels)
            for step in steps:
                rows = step(rows)
            return rows.reshape(batch, height, wide, width).permute(0, 3, 1, 2)

        return run


def at_pixels(matrices: Sequence[Tensor], bias: Tensor | None, pixels: int, dims: int) -> Steps:
    """Matrices in turn at each of so many pixels in one to three dimensions, the bias with the last."""
    pointwise = Geometry.pointwise(dims)
    biases = [*(None for _ in matrices[1:]), bias]
    kernels = [matrix.reshape(*matrix.shape, *pointwise.kernel) for matrix in matrices]
    convolutions = [Convolve(pointwise, *pair, pixels) for pair in zip(kernels, biases, strict=True)]
    if dims != 2:
        return tuple(convolutions)

    def convolve(x: Tensor) -> Tensor:
        for convolution in convolutions:
            x = convolution(x)
        return x

    rows = [AtRows(*pair, pixels) for pair in zip(matrices, biases, strict=True)]
    most = MANY if products_lag() else _SMALL
    is_sooner = can_pack(*matrices, bias=bias) or max(row.mult_adds for row in rows) <= most
    return (AtPixels(rows, len(matrices[-1]), convolve, is_sooner),)


@dataclasses.dataclass(frozen=True)
class Tapped(Weighted):
    """A depthwise convolution that is a module of its own, to so many pixels."""

    taps: nn.Module
    pixels: int

    def __call__(self, x: Tensor) -> Tensor:
        """A call of the module."""
        out: Tensor = self.taps(x)
        return out

    def packed(self, packs: Packs) -> Step:
        """Without a call of the module, as long as nobody hooks it."""
        taps = self.taps
        if type(taps) is not nn.Conv2d or taps.padding_mode != "zeros":
            return self
        run = Convolve(Geometry.of(taps), taps.weight, taps.bias, self.pixels, taps.groups).packed(packs)
        own = vars(taps)
        hooks = taps._forward_pre_hooks, taps._forward_hooks, *_GLOBAL_HOOKS
        return lambda x: taps(x) if "forward" in own or any(hooks) else run(x)
