"""ImageNet, or any images in class folders: train/CLASS/*.jpeg and val/CLASS/*.jpeg, decoded when needed.

Decoding and geometry are torchvision's, of the `vision` extra. Pixels travel as uint8 and are normalised by
whole batches on the device. What happens to an image follows from (seed, epoch, index) alone: neither the
number of workers, nor that of processes, nor a restart changes it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .augment import Augment, normalise
from .images import DataError, DataSet, at_most
from .sampler import SAMPLE, Loader, Sampler, generator

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SUFFIXES = frozenset({"bmp", "jpeg", "jpg", "png", "ppm", "tif", "tiff", "webp"})

Transform = Callable[[Any], Tensor]  # a PIL image → uint8 (3, size, size)


@dataclass(frozen=True, eq=False)
class Files:
    """The images of one part. The paths are one array, which workers share; a list they would copy."""

    folder: Path
    paths: NDArray[np.bytes_]  # (N,), relative to the folder
    labels: NDArray[np.int64]  # (N,)

    def path(self, index: int) -> Path:
        """Where an image is."""
        return self.folder / os.fsdecode(self.paths[index])

    def take(self, count: int) -> Files:
        """So many images at equal distances, as the files are in the order of the classes."""
        chosen = np.arange(count) * len(self.paths) // count
        return Files(self.folder, self.paths[chosen], self.labels[chosen])


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageFolders(DataSet):
    """Class folders; of a test image, `resize` pixels at its shorter side, the centre of `size` is cut.

    >>> from pathlib import Path
    >>> from understudy import data
    >>> for place in ("train/cat", "train/dog", "val/cat", "val/dog"):
    ...     Path("photos", place).mkdir(parents=True)
    ...     Path("photos", place, "1.jpeg").touch()
    >>> photos = data.load("imagenet", "photos", size=64, resize=72)
    >>> photos.classes, photos.image_shape, photos.train_size
    (('cat', 'dog'), (3, 64, 64), 2)
    """

    train: Files
    test: Files
    size: int = 224
    resize: int = 256

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image as the loaders give it."""
        return 3, self.size, self.size

    @property
    def train_size(self) -> int:
        """Number of training images."""
        return len(self.train.labels)

    @property
    def test_size(self) -> int:
        """Number of test images."""
        return len(self.test.labels)

    def take(self, *, train: int | None = None, test: int | None = None) -> ImageFolders:
        """The data set with only so many images, at equal distances in the order of the classes."""
        return replace(
            self,
            train=self.train.take(at_most(train, self.train_size, "training")),
            test=self.test.take(at_most(test, self.test_size, "test")),
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
        workers: int = 0,
    ) -> FolderBatches:
        """Shuffled, augmented batches."""
        sampler = Sampler(self.train_size, batch_size, seed, True, drop_last, rank, world_size)
        transform = _transform(self, augment or Augment())
        return FolderBatches(self, self.train, transform, sampler, device, workers)

    def test_batches(
        self,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        workers: int = 0,
    ) -> FolderBatches:
        """Batches in fixed order: resize, centre crop, normalise."""
        batch_size = min(batch_size, self.test_size)
        sampler = Sampler(self.test_size, batch_size, shuffle=False, rank=rank, world_size=world_size)
        transform = _transform(self, Augment())
        return FolderBatches(self, self.test, transform, sampler, device, workers)


@dataclass(frozen=True, eq=False)
class FolderBatches(Loader):
    """Iterates over (images, labels), decoded by `workers` processes, or in this one if 0."""

    data: ImageFolders
    files: Files
    transform: Transform
    sampler: Sampler
    device: torch.device | str | None = None
    workers: int = 0

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches of an epoch, from step `start` on."""
        steps = self.sampler.remaining(epoch, start)
        order = self.sampler.order(epoch)
        return self._load(epoch, [order[self.sampler.rows(step)].tolist() for step in steps])

    def _load(self, epoch: int, batches: list[list[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        decode = _vision("datasets.folder").default_loader
        loader = DataLoader(
            _Samples(self.files, self.transform, self.sampler.seed, epoch, decode),
            batch_sampler=[batch for batch in batches if batch],
            num_workers=self.workers,
            collate_fn=_collate,
            pin_memory=self.device is not None and torch.device(self.device).type == "cuda",
            generator=torch.Generator(),  # so that the global random state is left alone
        )
        nothing = torch.empty(0, *self.data.image_shape, dtype=torch.uint8), torch.empty(0, dtype=torch.int64)
        loaded = iter(loader)
        for batch in batches:
            images, labels = next(loaded) if batch else nothing
            images, labels = (tensor.to(self.device, non_blocking=True) for tensor in (images, labels))
            yield normalise(images, self.data.mean, self.data.std), labels


@dataclass(frozen=True, eq=False)
class _Samples(Dataset[tuple[Tensor, int]]):
    """The images of one epoch, each with its own random stream."""

    files: Files
    transform: Transform
    seed: int
    epoch: int
    decode: Callable[[str], Any]

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path = self.files.path(index)
        try:
            image = self.decode(str(path))
        except (OSError, SyntaxError) as error:  # the latter is Pillow's word for a broken PNG
            raise DataError(f"{path} cannot be read as an image: {error}") from error
        # torchvision draws from the global generator of the CPU: lend it ours, and give it back.
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(generator(self.seed, SAMPLE, self.epoch, index).get_state())
            return self.transform(image), int(self.files.labels[index])


def _collate(samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.tensor(labels)


def _transform(data: ImageFolders, augment: Augment) -> Transform:
    if augment.padding or augment.cutout:
        raise ValueError(
            f"{data.name} takes resized_crop and flip, "
            f"not padding {augment.padding} or cutout {augment.cutout}"
        )
    transforms = _vision("transforms")
    if augment.resized_crop:
        steps = [transforms.RandomResizedCrop(data.size)]
    else:
        steps = [transforms.Resize(data.resize), transforms.CenterCrop(data.size)]
    if augment.flip:
        steps.append(transforms.RandomHorizontalFlip())
    composed: Transform = transforms.Compose([*steps, transforms.PILToTensor()])
    return composed


def _vision(module: str) -> Any:
    try:
        return importlib.import_module(f"torchvision.{module}")
    except (ImportError, RuntimeError) as error:  # a wheel that does not fit its torch raises the latter
        raise ImportError(
            f"images in folders need torchvision, which cannot be imported ({error}); "
            "pip install 'understudy[vision]' brings it"
        ) from error


def load_imagenet(folder: Path, *, size: int = 224, resize: int = 256) -> ImageFolders:
    """Find the images below `folder`/train and `folder`/val; nothing is decoded yet."""
    if not 1 <= size <= resize:
        raise ValueError(f"size {size} is not in 1..{resize}, the size before the centre is cut out")
    names = {part: class_names(folder / part) for part in ("train", "val")}
    if names["train"] != names["val"]:
        only = sorted(set(names["train"]) ^ set(names["val"]))
        raise DataError(
            f"{folder}: train has {len(names['train'])} class folders, val {len(names['val'])}; "
            f"only one of them has {', '.join(only[:3])}{', …' if len(only) > 3 else ''}"
        )
    classes = names["train"]
    return ImageFolders(
        name="imagenet",
        classes=tuple(classes),
        mean=MEAN,
        std=STD,
        train=scan(folder / "train", classes),
        test=scan(folder / "val", classes),
        size=size,
        resize=resize,
    )


def class_names(folder: Path) -> list[str]:
    """The folders of one part, one for each class, in the order of their labels."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; expected a folder for each class in it")
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    if not names:
        raise DataError(f"{folder} is empty; expected a folder for each class in it")
    return names


def scan(folder: Path, classes: list[str]) -> Files:
    """The images in class folders, by class and name."""
    paths: list[bytes] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        images = sorted(
            entry.name
            for entry in os.scandir(folder / name)
            if entry.name.rpartition(".")[2].lower() in SUFFIXES
        )
        if not images:
            raise DataError(
                f"{folder / name} holds no image; expected files of {', '.join(sorted(SUFFIXES))}"
            )
        paths += [os.fsencode(f"{name}/{image}") for image in images]
        labels += [label] * len(images)
    return Files(folder, np.array(paths), np.array(labels))
