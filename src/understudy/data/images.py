"""What a data set offers to training: its names and statistics, and loaders of its two parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .augment import Augment
from .batches import Batches, check_images
from .sampler import Loader


class DataError(ValueError):
    """Data that are missing, damaged or of another kind; the message says what was found and expected.

    >>> import torch
    >>> from understudy.data import Images
    >>> pixels, labels = torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> Images(name="mine", classes=("cat",), mean=(0.5,) * 3, std=(0.2,) * 3,
    ...     train_images=pixels, train_labels=labels, test_images=pixels, test_labels=labels)
    Traceback (most recent call last):
    ...
    understudy.data.images.DataError: mine, train part: label 1 is not in 0..0 for 1 classes
    """


@dataclass(frozen=True, eq=False, kw_only=True)
class DataSet(ABC):
    """Images with labels 0..len(classes) − 1, for training and for testing; mean and deviation by channel.

    >>> from understudy import data
    >>> digits = data.load("digits").take(train=64)
    >>> isinstance(digits, data.DataSet), tuple(digits.example.shape), len(digits.train_batches(32, seed=0))
    (True, (1, 3, 8, 8), 2)
    >>> digits.check_classes(1000)
    Traceback (most recent call last):
    ...
    ValueError: digits has 10 classes, but the network 1000 outputs
    """

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def check_classes(self, outputs: int) -> None:
        """Raise a ValueError unless a network with this many outputs fits."""
        if outputs != len(self.classes):
            raise ValueError(
                f"{self.name} has {len(self.classes)} classes, but the network {outputs} outputs"
            )

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image as the loaders give it."""

    @property
    def example(self) -> Tensor:
        """A batch of one image of zeros, for whoever needs only the shape."""
        return torch.zeros(1, *self.image_shape)

    @property
    @abstractmethod
    def train_size(self) -> int:
        """Number of training images."""

    @property
    @abstractmethod
    def test_size(self) -> int:
        """Number of test images."""

    @abstractmethod
    def take(self, *, train: int | None = None, test: int | None = None) -> DataSet:
        """The data set with only so many images in its two parts, always the same ones."""

    @abstractmethod
    def train_batches(
        self,
        batch_size: int,
        *,
        seed: int,
        augment: Augment | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        workers: int = 0,
    ) -> Loader:
        """Shuffled, augmented batches; `workers` processes decode, where there is something to decode."""

    @abstractmethod
    def test_batches(
        self,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        workers: int = 0,
    ) -> Loader:
        """Batches in fixed order, only normalised; `batch_size` is a bound, a small set makes one batch."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Images(DataSet):
    """A data set that is wholly in memory: uint8 (N, C, H, W) and int64 (N,) for either part.

    >>> import torch
    >>> from understudy.data import Images
    >>> pixels, labels = torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> mine = Images(name="mine", classes=("cat", "dog"), mean=(0.5,) * 3, std=(0.2,) * 3,
    ...     train_images=pixels, train_labels=labels, test_images=pixels, test_labels=labels)
    >>> mine.image_shape, mine.take(train=4).train_size
    ((3, 8, 8), 4)
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def __post_init__(self) -> None:
        parts = ("train", self.train_images, self.train_labels), ("test", self.test_images, self.test_labels)
        for part, images, labels in parts:
            try:
                check_images(images, labels, len(self.classes))
            except ValueError as error:
                raise DataError(f"{self.name}, {part} part: {error}") from error
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            found = tuple(self.train_images.shape[1:]), tuple(self.test_images.shape[1:])
            raise DataError(f"{self.name}: training images are {found[0]}, test images {found[1]}")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @property
    def train_size(self) -> int:
        """Number of training images."""
        return len(self.train_images)

    @property
    def test_size(self) -> int:
        """Number of test images."""
        return len(self.test_images)

    def take(self, *, train: int | None = None, test: int | None = None) -> Images:
        """The data set with only the first `train` and `test` images of its two parts."""
        train, test = at_most(train, self.train_size, "training"), at_most(test, self.test_size, "test")
        return replace(
            self,
            train_images=self.train_images[:train],
            train_labels=self.train_labels[:train],
            test_images=self.test_images[:test],
            test_labels=self.test_labels[:test],
        )

    def train_batches(
        self,
        batch_size: int,
        *,
        seed: int,
        augment: Augment | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        workers: int = 0,  # noqa: ARG002 nothing is left to decode
    ) -> Batches:
        """Shuffled, augmented batches."""
        return Batches(
            self.train_images,
            self.train_labels,
            batch_size,
            mean=self.mean,
            std=self.std,
            seed=seed,
            augment=augment,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            device=device,
        )

    def test_batches(
        self,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        workers: int = 0,  # noqa: ARG002 nothing is left to decode
    ) -> Batches:
        """Batches in fixed order, only normalised."""
        return Batches(
            self.test_images,
            self.test_labels,
            min(batch_size, self.test_size),
            mean=self.mean,
            std=self.std,
            shuffle=False,
            rank=rank,
            world_size=world_size,
            device=device,
        )


def at_most(asked: int | None, available: int, part: str) -> int:
    """How many images to take: all by default, and never more than there are."""
    if asked is None:
        return available
    if not 1 <= asked <= available:
        raise ValueError(f"{asked} {part} images is not in 1..{available}")
    return asked
