"""Batches of images that are in memory: gathered, augmented and normalised whole, on the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .augment import Augment
from .sampler import BATCH, Loader, Sampler, generator


class Batches(Loader):
    """Iterates over (images, labels); bit-identical from any (seed, epoch, step) and for any world size.

    The random numbers of a step are drawn for the global batch and cut by rank, on the CPU: every device and
    every number of processes sees the same augmentation.

    >>> import torch
    >>> from understudy.data import Batches
    >>> images, labels = torch.zeros(10, 1, 4, 4, dtype=torch.uint8), torch.arange(10)
    >>> batches = Batches(images, labels, 4, mean=[0.5], std=[0.5], seed=0)
    >>> [(tuple(x.shape), len(y)) for x, y in batches.epoch(0, start=1)]  # the first was seen already
    [((4, 1, 4, 4), 4), ((2, 1, 4, 4), 2)]
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        batch_size: int,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        seed: int = 0,
        augment: Augment | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        classes: int | None = None,
    ) -> None:
        check_images(images, labels, classes)
        if not len(mean) == len(std) == images.shape[1]:
            raise ValueError(f"{images.shape[1]} channels, but {len(mean)} means and {len(std)} deviations")
        self.sampler = Sampler(len(images), batch_size, seed, shuffle, drop_last, rank, world_size)
        self.images = images.to(device)  # (N, C, H, W), uint8
        self.labels = labels.to(device)  # (N,)
        self.mean, self.std = tuple(mean), tuple(std)
        self.augment = augment or Augment()
        self.augment.check_in_memory()
        side = max(images.shape[2:])
        if self.augment.padding > side:  # every image of a batch is padded at once
            raise ValueError(f"padding {self.augment.padding} is more than the {side} pixels of an image")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches of an epoch, from step `start` on."""
        sampler = self.sampler
        steps = sampler.remaining(epoch, start)
        order = sampler.order(epoch).to(self.images.device)
        return (self._batch(order[sampler.rows(step)], epoch, step) for step in steps)

    def _batch(self, chosen: Tensor, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        sampler = self.sampler
        height, width = self.images.shape[2:]
        draws = self.augment.draw(
            sampler.size(step), height, width, generator(sampler.seed, BATCH, epoch, step)
        )
        images = self.augment.apply(self.images[chosen], draws[sampler.share(step)], self.mean, self.std)
        return images, self.labels[chosen]


def check_images(images: Tensor, labels: Tensor, classes: int | None = None) -> None:
    """Raise a ValueError unless these are N ≥ 1 uint8 images and N labels, in 0..classes − 1 if given."""
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise ValueError(
            f"images are {_kind(images)}; they must be uint8 of 4 dimensions: number, channels, height, width"
        )
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise ValueError(f"labels are {_kind(labels)}; they must be int64 of 1 dimension")
    if len(images) != len(labels):
        raise ValueError(f"{len(images)} images, but {len(labels)} labels")
    if not len(images):
        raise ValueError("the data set is empty: there are 0 images")
    least, most = int(labels.min()), int(labels.max())
    if least < 0 or (classes is not None and most >= classes):
        legal = "0 up" if classes is None else f"0..{classes - 1} for {classes} classes"
        raise ValueError(f"label {least if least < 0 else most} is not in {legal}")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
