"""The input of a layer as vectors: for a convolution the patches under its kernel, at some output pixels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from understudy.layers.dense import DenseMap


def sample_positions(layer: DenseMap, x: Tensor, most: int, generator: torch.Generator) -> Tensor | None:
    """Which output positions of a batch to look at, the same for every sample; None is all of them."""
    total = position_count(layer, x)
    if total <= most:
        return None
    return torch.randperm(total, generator=generator)[:most].sort().values.to(x.device)


def position_count(layer: DenseMap, x: Tensor) -> int:
    """Output positions of a sample: tokens or pixels."""
    geometry = layer.geometry
    return math.prod(x.shape[1:-1] if geometry is None else geometry.output_size(x))


def input_rows(layer: DenseMap, x: Tensor, positions: Tensor | None) -> Tensor:
    """What the weight, as a matrix out × in·taps, is multiplied with: (samples, positions, in·taps)."""
    geometry = layer.geometry
    if geometry is None:
        x = _as_sequences(x)
        return x if positions is None else x[:, positions]
    sizes = geometry.output_size(x)
    flat = torch.arange(math.prod(sizes), device=x.device) if positions is None else positions
    padded = geometry.pad(x)
    samples, channels, *sides = padded.shape
    pixels = padded.movedim(1, -1).flatten(1, -2).contiguous()  # a pixel is one run of memory
    corner = _flat_index(_unravel(flat, sizes), geometry.stride, sides)
    window = torch.cartesian_prod(*(torch.arange(size, device=x.device) for size in geometry.kernel))
    taps = _flat_index(list(window.reshape(-1, geometry.dims).unbind(1)), geometry.dilation, sides)
    picked = pixels.index_select(1, (corner[:, None] + taps).flatten())  # (samples, positions · taps, in)
    return picked.reshape(samples, len(flat), len(taps), channels).mT.flatten(2)


def output_rows(layer: DenseMap, y: Tensor, positions: Tensor | None) -> Tensor:
    """A tensor shaped like the layer's output, aligned with `input_rows`: (samples, positions, out)."""
    rows = _as_sequences(y) if layer.geometry is None else y.flatten(2).mT
    return rows if positions is None else rows[:, positions]


def _as_sequences(vectors: Tensor) -> Tensor:
    """(samples, …, features) → (samples, positions, features); a lone vector is one sample."""
    vectors = vectors if vectors.dim() > 1 else vectors.unsqueeze(0)
    return vectors.unsqueeze(1).flatten(1, -2)


def _unravel(flat: Tensor, sizes: list[int]) -> list[Tensor]:
    """Flat positions → one index an axis."""
    found: list[Tensor] = []
    for size in reversed(sizes):
        found.insert(0, flat % size)
        flat = flat // size
    return found


def _flat_index(indices: list[Tensor], steps: tuple[int, ...], sides: list[int]) -> Tensor:
    """One index an axis, each multiplied by its step → flat pixels of an image."""
    flat = torch.zeros_like(indices[0])
    for index, step, side in zip(indices, steps, sides, strict=True):
        flat = flat * side + index * step
    return flat
