"""Which images make up batch k of epoch e: a pure function of (seed, epoch, step).

Nothing here has a state. A run that stopped before step k of epoch e goes on with `epoch(e, start=k)` and
meets the batches it would have met; the number of processes may change in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

ORDER, BATCH, SAMPLE = range(3)  # what a random stream is for; each draws from its own


def generator(seed: int, *key: int) -> Generator:
    """A CPU generator of its own for each seed and key, such as (BATCH, epoch, step)."""
    mixed = np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint64)
    return Generator().manual_seed(int(mixed[0]))


def leaves_one(length: int, batch_size: int) -> bool:
    """Whether the last batch would be one sample, of which batch norms could tell no variance."""
    return batch_size > 1 and length % batch_size == 1


def has_length(data: Iterable[Any]) -> bool:
    """Whether it says how much it holds; a DataLoader of a stream has `len`, which fails."""
    try:
        return isinstance(data, Sized) and len(data) >= 0
    except TypeError:
        return False


@dataclass(frozen=True)
class Sampler:
    """Cuts `length` images into global batches, and each global batch into one slice a process.

    The slices of all ranks, joined in rank order, are the batch of a single process. Where the world size
    does not divide a batch, they differ in length by one. Without `shuffle`, as for testing, some may be
    empty.

    >>> from understudy.data import Sampler
    >>> ranks = [Sampler(10, batch_size=4, rank=rank, world_size=2) for rank in (0, 1)]
    >>> ranks[0].steps, [sampler.rows(1) for sampler in ranks]  # of the order of an epoch
    (3, [slice(4, 6, None), slice(6, 8, None)])
    >>> ranks[0].order(epoch=3).equal(ranks[1].order(epoch=3))
    True
    """

    length: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError("the data set is empty: there are 0 images")
        if not 1 <= self.batch_size <= self.length:
            raise ValueError(f"batch size {self.batch_size} is not in 1..{self.length}, the number of images")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not in 0..{self.world_size - 1}")
        least = self.size(self.steps - 1)
        if self.shuffle and least < self.world_size:
            raise ValueError(
                f"the last batch of an epoch has {least} images, too few for {self.world_size} processes; "
                f"use another batch size than {self.batch_size}{'' if self.drop_last else ', or drop_last'}"
            )
        if self.seed < 0:
            raise ValueError(f"seed {self.seed} is not a whole number from 0 up")

    @property
    def steps(self) -> int:
        """Batches an epoch."""
        whole, rest = divmod(self.length, self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    def size(self, step: int) -> int:
        """Images in the global batch of this step, all processes together."""
        return min(self.batch_size, self.length - step * self.batch_size)

    def order(self, epoch: int) -> Tensor:
        """The images in the order of this epoch, (length,)."""
        if not self.shuffle:
            return torch.arange(self.length)
        return torch.randperm(self.length, generator=generator(self.seed, ORDER, epoch))

    def share(self, step: int) -> slice:
        """This rank's part of the global batch of this step."""
        size = self.size(step)
        return slice(self.rank * size // self.world_size, (self.rank + 1) * size // self.world_size)

    def rows(self, step: int) -> slice:
        """This rank's part of the order of an epoch."""
        first, share = step * self.batch_size, self.share(step)
        return slice(first + share.start, first + share.stop)

    def remaining(self, epoch: int, start: int) -> range:
        """The steps from `start` on."""
        if epoch < 0:
            raise ValueError(f"epoch {epoch} is not a whole number from 0 up")
        if not 0 <= start <= self.steps:
            raise ValueError(f"step {start} is not in 0..{self.steps}, the steps of an epoch")
        return range(start, self.steps)


class Loader(ABC):
    """Batches of (images, labels): float32 (B, C, H, W), int64 (B,), on the device asked for.

    >>> from understudy import data
    >>> loader = data.load("digits").test_batches(200)
    >>> isinstance(loader, data.Loader), len(loader), [len(labels) for _, labels in loader.epoch(0)]
    (True, 3, [200, 200, 100])
    """

    sampler: Sampler

    def __len__(self) -> int:
        """Batches an epoch, the same for every rank."""
        return self.sampler.steps

    def size(self, step: int) -> int:
        """Images in the global batch of this step; what to divide a sum over all processes by."""
        return self.sampler.size(step)

    @abstractmethod
    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches of an epoch, from step `start` on; as many on every rank."""
