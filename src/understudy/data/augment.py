"""Whole-batch augmentation of uint8 images, on whatever device they are: no loop over images.

An image is cropped, mirrored, normalised, then cut: the crop pads with zero pixels before normalisation,
Cutout writes zeros after it, as the published recipes do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor


@dataclass(frozen=True)
class Augment:
    """What is done to a training image; the default does nothing.

    `padding`: crop to the original size at a random place of the image padded by that many zero pixels.
    `flip`: mirror left and right with probability ½. `cutout`: side of the square set to zero after
    normalisation. `resized_crop`: a random part of random size, scaled to the input size (images from files).

    >>> import torch
    >>> from understudy.data import Augment
    >>> augment, images = Augment(padding=1, flip=True), torch.zeros(5, 3, 8, 8, dtype=torch.uint8)
    >>> draws = augment.draw(5, 8, 8, torch.Generator().manual_seed(0))
    >>> augment.apply(images, draws, mean=(0.5,) * 3, std=(0.5,) * 3).unique()
    tensor([-1.])
    """

    padding: int = 0
    flip: bool = False
    cutout: int = 0
    resized_crop: bool = False

    def __post_init__(self) -> None:
        for name, value in (("padding", self.padding), ("cutout", self.cutout)):
            if value < 0:
                raise ValueError(f"{name} {value} is not a whole number of pixels from 0 up")

    def check_in_memory(self) -> None:
        """Raise a ValueError if images in memory, all of one size, cannot be augmented like this."""
        if self.resized_crop:
            raise ValueError("resized_crop is for images read from files; images in memory take padding")

    def draw(self, count: int, height: int, width: int, generator: Generator) -> Tensor:
        """The random choices of `count` images, (count, 5): top, left, mirrored, cutout row and column.

        All five are drawn whether used or not, so that switching one off leaves the others as they were.
        """
        bounds = (2 * self.padding + 1, 2 * self.padding + 1, 2, height, width)
        device = generator.device
        columns = [torch.randint(bound, (count,), generator=generator, device=device) for bound in bounds]
        return torch.stack(columns, dim=1)

    def apply(self, images: Tensor, draws: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
        """uint8 (B, C, H, W) and the choices of `draw` → float32 (B, C, H, W)."""
        self.check_in_memory()
        top, left, mirrored, row, column = draws.to(images.device).unbind(1)  # (B,) each
        if self.padding:
            images = crop(images, top, left, self.padding)
        if self.flip:
            images = flip(images, mirrored)
        normalised = normalise(images, mean, std)
        return cutout(normalised, row, column, self.cutout) if self.cutout else normalised


def crop(images: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """The window of the original size at (top, left), 0..2·padding each, of the zero-padded image."""
    batch, _channels, height, width = images.shape
    padded = F.pad(images, (padding, padding, padding, padding))  # (B, C, H + 2p, W + 2p)
    # A view of all windows, so that choosing one an image is a single indexed copy.
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # (B, C, 2p + 1, 2p + 1, H, W)
    return windows[torch.arange(batch, device=images.device), :, top, left]  # (B, C, H, W)


def flip(images: Tensor, mirrored: Tensor) -> Tensor:
    """Mirror left and right the images whose entry of `mirrored` is not zero."""
    return torch.where(mirrored.bool()[:, None, None, None], images.flip(3), images)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(x / 255 − mean) / std by channel, float32; rounded as torchvision's ToTensor and Normalize do."""
    shift = torch.tensor(mean, dtype=torch.float32, device=images.device)[:, None, None]  # (C, 1, 1)
    scale = torch.tensor(std, dtype=torch.float32, device=images.device)[:, None, None]
    return images.to(torch.float32).div_(255).sub_(shift).div_(scale)


def cutout(images: Tensor, row: Tensor, column: Tensor, length: int) -> Tensor:
    """Zero the square of side `length` around (row, column), clipped at the border.

    Its first row is row − ⌊length / 2⌋: for an even length that is the published Cutout exactly.
    """
    _batch, _channels, height, width = images.shape
    rows = _covered(row, height, length)[:, None, :, None]  # (B, 1, H, 1)
    columns = _covered(column, width, length)[:, None, None, :]  # (B, 1, 1, W)
    return images.masked_fill(rows & columns, 0)


def _covered(centre: Tensor, size: int, length: int) -> Tensor:
    """Which of `size` lines lie within the square, (B, size)."""
    offset = torch.arange(size, device=centre.device) - (centre - length // 2)[:, None]
    return (offset >= 0) & (offset < length)
