"""Layers around a transform: bias, kernel, stride, padding and dilation, once for all transforms.

Each has `weight`, the dense weight it stands for, formed on demand: code that reads a layer's weight
instead of calling the layer (as nn.MultiheadAttention does with its out_proj) still gets the right one.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init
from torch.utils.checkpoint import checkpoint

from understudy.transforms import Transform

from .geometry import DenseConv, Geometry


class Layer(nn.Module, abc.ABC):
    """A stand-in for a dense layer: `transform` does its linear part.

    With `recompute`, training keeps no more than a dense layer would, the input: what lies between input and
    output is computed again in the backward pass. Set it to False to spend memory and save time.
    """

    transform: Transform
    bias: Tensor | None
    recompute: bool

    @property
    @abc.abstractmethod
    def weight(self) -> Tensor:
        """The dense weight, formed from the factors; gradients flow through it."""

    @abc.abstractmethod
    def merged(self) -> nn.Module:
        """A plain layer with the same outputs."""

    def _keep_input(self, run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`run(x)`, recomputed in the backward pass if there will be one."""
        if self.recompute and self.training and torch.is_grad_enabled() and _may_recompute():
            out: Tensor = checkpoint(run, x, use_reentrant=False, preserve_rng_state=False)
            return out
        return run(x)

    def reset_parameters(self) -> None:
        """Set the bias to zero; the transform draws its own parameters."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def ideal_mult_adds(self, positions: int) -> int:
        """Mult-adds for `positions` output vectors, all that does not depend on the input done ahead."""
        transform = self.transform
        return positions * transform.ideal_mult_adds(
            transform.in_features, transform.out_features, transform.knob
        )


def stand_ins(model: nn.Module) -> Iterator[tuple[str, Layer]]:
    """The understudy layers of a network by path; one that is part of another is not named by itself."""
    parts: set[nn.Module] = set()
    for path, module in model.named_modules():
        if isinstance(module, Layer) and module not in parts:
            parts.update(module.modules())
            yield path, module


class Linear(Layer):
    """y = W x + bias."""

    def __init__(self, transform: Transform, bias: Tensor | None = None) -> None:
        super().__init__()
        self.transform = transform
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.in_features, self.out_features = transform.in_features, transform.out_features
        self.recompute = transform.keeps_much

    @property
    def weight(self) -> Tensor:
        """W, (out, in)."""
        return self.transform.matrix()

    def forward(self, x: Tensor) -> Tensor:
        """Apply to `(..., in)`."""
        out = self._keep_input(self.transform, x)
        return out if self.bias is None else out + self.bias.to(out.dtype)  # as autocast gives it

    def merged(self) -> nn.Linear:
        """The same map as nn.Linear."""
        weight = self.weight
        linear: nn.Linear = skip_init(
            nn.Linear,
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            device=weight.device,
            dtype=weight.dtype,
        )
        _fill_(linear, weight, self.bias)
        return linear


class Conv(Layer):
    """A convolution whose weight, as a matrix out × in·taps, is structured."""

    def __init__(self, transform: Transform, geometry: Geometry, bias: Tensor | None = None) -> None:
        super().__init__()
        self.transform = transform
        self.geometry = geometry
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.in_channels = transform.in_features // geometry.area
        self.out_channels = transform.out_features
        self.kernel_size, self.stride = geometry.kernel, geometry.stride
        self.padding, self.dilation, self.groups = geometry.padding, geometry.dilation, 1
        unfolds = geometry.area > 1 and transform.factors() is None  # every pixel of x is kept `area` times
        self.recompute = transform.keeps_much or unfolds

    @property
    def weight(self) -> Tensor:
        """The kernel, (out, in, …)."""
        return self._kernel(self.transform.matrix())

    def _kernel(self, matrix: Tensor) -> Tensor:
        return matrix.reshape(-1, self.in_channels, *self.geometry.kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to `(batch, in, …)` or `(in, …)`."""
        self.geometry.check_input(x, self.in_channels)
        if x.dim() == self.geometry.dims + 1:
            return self._keep_input(self._run, x.unsqueeze(0)).squeeze(0)
        return self._keep_input(self._run, x)

    def _run(self, x: Tensor) -> Tensor:
        geometry = self.geometry
        size = geometry.output_size(x)
        if not self.transform.runs_structured(x.shape[0] * math.prod(size)):
            return geometry.convolve(x, self.weight, self.bias)
        ones = (1,) * geometry.dims
        factors = self.transform.factors()
        if factors is not None:
            first, second = factors
            hidden = geometry.convolve(x, self._kernel(first))
            kernel = second.reshape(*second.shape, *ones)
            return Geometry.pointwise(geometry.dims).convolve(hidden, kernel, self.bias)
        out = self._structured(x).reshape(x.shape[0], self.out_channels, *size)
        return out if self.bias is None else out + self.bias.to(out.dtype).reshape(-1, *ones)

    def _structured(self, x: Tensor) -> Tensor:
        """Apply the transform in the memory layout of the input; the output has the same."""
        channels_last = x.dim() == 4 and x.stride(1) == 1 and x.shape[1] > 1
        if self.geometry.area == 1:
            pixels = self.geometry.pixels(x)
            if channels_last:
                return self.transform.structured(pixels.movedim(1, -1)).movedim(-1, 1)
            return self.transform.structured_columns(pixels.flatten(2)).contiguous()
        patches = self.geometry.patches(x)
        if channels_last:
            return self.transform.structured(patches.mT).contiguous().mT
        return self.transform.structured_columns(patches).contiguous()

    def merged(self) -> DenseConv:
        """The same map as nn.Conv1d or nn.Conv2d."""
        return _merged_conv(self.geometry, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Show the geometry when a model is printed."""
        geometry = self.geometry
        return f"kernel={geometry.kernel}, stride={geometry.stride}, padding={geometry.padding}"


class SeparableConv(Layer):
    """A depthwise k×k convolution without bias, then a structured pointwise one."""

    def __init__(self, transform: Transform, geometry: Geometry, bias: Tensor | None = None) -> None:
        super().__init__()
        parameter = next(transform.parameters())
        self.depthwise = geometry.dense(
            transform.in_features,
            transform.in_features,
            groups=transform.in_features,
            device=parameter.device,
            dtype=parameter.dtype,
        )
        self.pointwise = Conv(transform, Geometry.pointwise(geometry.dims), bias)
        self.pointwise.recompute = False  # as part of the whole
        self.recompute = True  # or else the image between the two parts is kept as well
        self.geometry = geometry
        self._draw_taps_()
        self.in_channels, self.out_channels = transform.in_features, transform.out_features
        self.kernel_size, self.stride = geometry.kernel, geometry.stride
        self.padding, self.dilation, self.groups = geometry.padding, geometry.dilation, 1

    @torch.no_grad()
    def _draw_taps_(self) -> None:
        """Random taps that keep the variance of their input, from the transform's seed."""
        taps = self.depthwise.weight
        if not taps.is_meta:
            generator = torch.Generator().manual_seed(self.transform.seed + 1)
            taps.copy_(torch.randn(taps.shape, generator=generator) / math.sqrt(self.geometry.area))

    @property
    def transform(self) -> Transform:  # type: ignore[override]
        """The pointwise map."""
        return self.pointwise.transform

    @property
    def bias(self) -> Tensor | None:  # type: ignore[override]
        """The bias of the pointwise map."""
        return self.pointwise.bias

    @property
    def weight(self) -> Tensor:
        """W[o,i,…] = pointwise[o,i] · depthwise[i,…]."""
        return self.pointwise.weight * self.depthwise.weight.transpose(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to `(batch, in, …)` or `(in, …)`."""
        self.geometry.check_input(x, self.in_channels)
        return self._keep_input(self._run, x)

    def _run(self, x: Tensor) -> Tensor:
        out: Tensor = self.pointwise(self.depthwise(x))
        return out

    def merged(self) -> DenseConv:
        """One dense k×k convolution."""
        return _merged_conv(self.geometry, self.weight, self.bias)

    def ideal_mult_adds(self, positions: int) -> int:
        """The depthwise taps, then the pointwise map."""
        return positions * self.in_channels * self.geometry.area + super().ideal_mult_adds(positions)


def _may_recompute() -> bool:
    """Not in an exported graph, which has no backward pass, nor under torch.func, which forbids the hooks."""
    if torch.compiler.is_compiling():
        return not torch.compiler.is_exporting()
    allowed: bool = torch._C._autograd._saved_tensors_hooks_is_enabled()  # type: ignore[attr-defined]
    return allowed


def _merged_conv(geometry: Geometry, weight: Tensor, bias: Tensor | None) -> DenseConv:
    conv = geometry.dense(
        weight.shape[1], weight.shape[0], bias=bias is not None, device=weight.device, dtype=weight.dtype
    )
    _fill_(conv, weight, bias)
    return conv


@torch.no_grad()
def _fill_(dense: nn.Linear | DenseConv, weight: Tensor, bias: Tensor | None) -> None:
    dense.weight.copy_(weight)
    if bias is not None and dense.bias is not None:
        dense.bias.copy_(bias)
        dense.bias.requires_grad_(bias.requires_grad)
