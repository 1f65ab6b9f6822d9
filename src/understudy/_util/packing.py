"""Weights laid out ahead as the processor's library reads them: PyTorch lays them out anew at every call."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch
from torch import Tensor

Run = Callable[[Tensor], Tensor]
_PROCESSORS = ("x86_64", "AMD64")  # where it was measured
_SIZES = 4  # of images, for which one kernel is laid out
_LAYOUTS = 16  # of kernels, beside each other


class _Operations(NamedTuple):
    """With what compiled graphs run products and convolutions of fixed weights on processors."""

    lay_out_matrix: Callable[..., Tensor]
    multiply: Callable[..., Tensor]
    lay_out_kernel: Callable[..., Tensor]
    convolve: Callable[..., Tensor]


@functools.cache
def _operations() -> _Operations | None:
    """Those of this build of PyTorch; None where it has none, or on another kind of processor."""
    if not torch.backends.mkldnn.is_available() or platform.machine() not in _PROCESSORS:
        return None
    library = torch.ops.mkldnn
    try:
        return _Operations(
            library._reorder_linear_weight.default,
            library._linear_pointwise.default,
            torch._C._nn.mkldnn_reorder_conv2d_weight,
            library._convolution_pointwise.default,
        )
    except AttributeError:  # a build whose library lays nothing out ahead
        return None


def can_pack(*weights: Tensor, bias: Tensor | None = None) -> bool:
    """Whether these can be laid out ahead: weights of single precision on a processor.

    A bias is read as it lies, one value after the other.
    """
    can_add = bias is None or (bias.is_contiguous() and can_meet(bias))
    return _operations() is not None and can_add and all(map(can_meet, weights))


def can_meet(x: Tensor) -> bool:
    """Whether a tensor can meet weights that are laid out: of single precision on a processor."""
    is_single = x.dtype is torch.float32 and x.is_cpu and x.layout is torch.strided
    return is_single and torch._C._get_mkldnn_enabled()


class Packs:
    """Weights laid out ahead, each once for all that it is used for.

    Weights must be such that `can_pack`. What runs with them takes tensors that `can_meet` them, and images
    whose channels lie side by side.
    """

    def __init__(self) -> None:
        # By where it lies, each with itself: while it is held, nothing else comes to lie there.
        self._held: dict[Hashable, tuple[Tensor, dict[Hashable, Tensor]]] = {}
        self._kernels = 0

    def product(self, matrix: Tensor, bias: Tensor | None) -> Run:
        """x → x · matrixᵀ + bias, for (…, channels)."""
        known, layouts = _known(), self._layouts(matrix)
        packed = layouts.get(None)
        if packed is None:
            packed = layouts[None] = known.lay_out_matrix(matrix.contiguous())
        return lambda x: known.multiply(x, packed, bias, "none", [], "")

    def convolution(
        self,
        kernel: Tensor,
        bias: Tensor | None,
        size: torch.Size,
        *,
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        groups: int,
    ) -> Run | None:
        """As torch.nn.functional.conv2d for images of this size; None where much is laid out already.

        What is laid out for one size may have to be laid out anew for another.
        """
        known, layouts = _known(), self._layouts(kernel)
        geometry = padding, stride, dilation, groups
        packed = layouts.get((size, geometry))
        if packed is None:
            if len(layouts) >= _SIZES or self._kernels >= _LAYOUTS:
                return None
            self._kernels += 1
            packed = known.lay_out_kernel(kernel.contiguous().to_mkldnn(), *geometry, size)
            layouts[size, geometry] = packed
        return lambda x: known.convolve(x, packed, bias, *geometry, "none", [], "")

    def _layouts(self, weight: Tensor) -> dict[Hashable, Tensor]:
        """What a weight was laid out as, by what for."""
        return self._held.setdefault((weight.data_ptr(), weight.shape, weight.stride()), (weight, {}))[1]


def _known() -> _Operations:
    known = _operations()
    if known is None:
        raise RuntimeError("weights cannot be laid out ahead here")
    return known
