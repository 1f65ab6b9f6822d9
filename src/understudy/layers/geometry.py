"""Where a convolution looks: kernel, stride, padding and dilation in one to three dimensions."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

DenseConv = nn.Conv1d | nn.Conv2d | nn.Conv3d
# By the number of dimensions, less one.
_CLASSES = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FUNCTIONS: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)


def is_channels_last(x: Tensor) -> bool:
    """Whether the channels of images lie side by side in memory."""
    return x.dim() == 4 and x.stride(1) == 1 and x.shape[1] > 1


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The geometry of a convolution, apart from its channels and weights."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    padding_mode: str

    @classmethod
    def of(cls, conv: DenseConv) -> Geometry:
        """The geometry of a dense convolution."""
        return cls(conv.kernel_size, conv.stride, conv.padding, conv.dilation, conv.padding_mode)

    @classmethod
    def pointwise(cls, dims: int) -> Geometry:
        """One pixel in, one pixel out."""
        ones = (1,) * dims
        return cls(ones, ones, (0,) * dims, ones, "zeros")

    @property
    def dims(self) -> int:
        """1, 2 or 3."""
        return len(self.kernel)

    @property
    def area(self) -> int:
        """Taps of the kernel."""
        return math.prod(self.kernel)

    @property
    def edges(self) -> list[int]:
        """How much to pad, in the order of F.pad: before and after the last axis, then the one before it."""
        if self.padding == "valid":
            pairs = [(0, 0)] * self.dims
        elif self.padding == "same":
            totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
            pairs = [(total // 2, total - total // 2) for total in totals]
        else:
            pairs = [(int(p), int(p)) for p in self.padding]
        return list(itertools.chain.from_iterable(reversed(pairs)))

    def pad(self, x: Tensor) -> Tensor:
        """`x` with its border added."""
        if not any(self.edges):
            return x
        return F.pad(x, self.edges, mode="constant" if self.padding_mode == "zeros" else self.padding_mode)

    def check_input(self, x: Tensor, channels: int) -> None:
        """Raise a ValueError unless `x` is (batch, channels, …) or (channels, …)."""
        axis = x.dim() - self.dims - 1
        if axis not in (0, 1) or x.shape[axis] != channels:
            sizes = f"{channels}{', …' * self.dims}"
            raise ValueError(f"expected (batch, {sizes}) or ({sizes}), got {tuple(x.shape)}")

    def batched(self, run: Callable[[Tensor], Tensor], x: Tensor, channels: int) -> Tensor:
        """`run` on (batch, channels, …), of which (channels, …) is one; a ValueError for any other shape."""
        self.check_input(x, channels)
        return run(x.unsqueeze(0)).squeeze(0) if x.dim() == self.dims + 1 else run(x)

    def output_size(self, x: Tensor) -> list[int]:
        """Pixels of the output along each axis."""
        edges = self.edges
        axes = zip(x.shape[2:], self.kernel, self.stride, self.dilation, strict=True)
        return [
            (size + sum(edges[2 * (self.dims - 1 - axis) :][:2]) - d * (k - 1) - 1) // s + 1
            for axis, (size, k, s, d) in enumerate(axes)
        ]

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, groups: int = 1) -> Tensor:
        """A convolution of this geometry."""
        run = _FUNCTIONS[self.dims - 1]
        if self.padding_mode == "zeros":
            return run(x, weight, bias, self.stride, self.padding, self.dilation, groups)
        return run(self.pad(x), weight, bias, self.stride, 0, self.dilation, groups)

    def convolve_slices(self, x: Tensor, matrix: Tensor, bias: Tensor | None, groups: int) -> Tensor:
        """A grouped convolution whose groups have one kernel, given as a matrix rows × columns·taps."""
        kernel = matrix.reshape(len(matrix), -1, *self.kernel)
        return self.convolve(x, torch.cat([kernel] * groups) if groups > 1 else kernel, bias, groups)

    def pixels(self, x: Tensor) -> Tensor:
        """The pixels a 1×1 kernel looks at, (batch, channels, …)."""
        every = (slice(None, None, step) for step in self.stride)
        window = (slice(None), slice(None), *every)
        return self.pad(x)[window]

    def patches(self, x: Tensor) -> Tensor:
        """The patch under the kernel at every output pixel, (batch, channels · area, pixels)."""
        x = self.pad(x)
        if self.dims == 2:
            return F.unfold(x, self.kernel, dilation=self.dilation, stride=self.stride)
        if self.dims == 3:
            for axis, (k, s, d) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True), 2):
                x = x.unfold(axis, d * (k - 1) + 1, s)[..., ::d]
            return x.permute(0, 1, 5, 6, 7, 2, 3, 4).flatten(1, 4).flatten(2)
        return F.unfold(
            x.unsqueeze(2), (1, *self.kernel), dilation=(1, *self.dilation), stride=(1, *self.stride)
        )

    def dense(
        self,
        in_channels: int,
        out_channels: int,
        *,
        bias: bool = False,
        groups: int = 1,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> DenseConv:
        """A plain convolution of this geometry, its weights not set."""
        conv: DenseConv = skip_init(
            _CLASSES[self.dims - 1],
            in_channels,
            out_channels,
            self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=groups,
            bias=bias,
            padding_mode=self.padding_mode,
            device=device,
            dtype=dtype,
        )
        return conv
