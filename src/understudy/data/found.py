"""Data for a network that is trained already, wherever they are: inputs to look at, and others to test on.

Labels are welcome and not needed. What lies in a folder is found out: CIFAR in either layout, train/ and val/
with class folders, class folders alone, or images alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from understudy._util.factories import FactoryError, call_factory

from . import load, names
from .augment import Augment
from .cifar import CIFAR10, CIFAR100, find_layout, load_cifar
from .imagenet import MEAN, STD, SUFFIXES, Files, ImageFolders, class_names, load_imagenet, scan
from .images import DataError, DataSet, Images
from .sampler import Loader, has_length, leaves_one

_HELD_BACK = 8  # every so-manieth sample or batch is for the test, where the data have no test part
_BATCH = 64
_MOST_JUDGED = 1024  # samples


@dataclass(frozen=True, eq=False)
class Found:
    """Inputs of a training part as they are, the same to train on, others to judge that by and to test on.

    Where none were set apart, a training is `judged` by the inputs themselves. All but `training` can be
    iterated over again and again; they give what a network takes, in batches, with labels or without.
    `classes` are what these mean, in their order, where anybody says so.
    """

    name: str
    labelled: bool  # images alone have no labels; batches may have
    classes: tuple[str, ...]
    inputs: Iterable[Any]
    training: Loader | Iterable[Any]
    judged: Iterable[Any]
    test: Iterable[Any]
    mean: tuple[float, ...] = ()  # of images, by which they are normalised
    std: tuple[float, ...] = ()


def find_data(
    source: str,
    *,
    seed: int = 0,
    batch_size: int = 128,
    augment: Augment | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | None = None,
    download: bool = False,
    workers: int = 0,
    apart: bool = False,
    tested: int | None = None,
) -> Found:
    """The data at `source`: a folder, a name such as `digits`, or `package.module:factory`.

    A factory gives a DataSet, or batches: tensors, (inputs, labels) or dictionaries. `size` is the side of
    images that are read from files. Where there is no test part, an eighth is held back for it, and where a
    training is to be judged, an eighth of the rest, at most 1,024 images, is set `apart`. Of the images to
    test on at most so many are `tested`. `augment` is for the training part; the rest of the settings is as
    for `load`.
    """
    if ":" in source and not Path(source).exists():
        try:
            made = call_factory(source)
        except FactoryError as error:
            raise DataError(f"no data {source!r}: {error}") from error
        if not isinstance(made, DataSet):
            return _of_batches(source, made, apart=apart)
    elif source in names() and not Path(source).is_dir():
        made = load(source, download=download)
    else:
        made = load_folder(Path(source), size=size)
    made = _normalised(made, mean, std)
    if tested is not None:
        made = made.take(test=min(tested, made.test_size))
    return _of_data_set(made, seed, batch_size, augment or Augment(), workers, apart=apart)


def load_folder(folder: Path, *, size: int | None = None) -> DataSet:
    """The data set that lies in a folder; a DataError where there is none."""
    if not folder.is_dir():
        raise DataError(
            f"no data {str(folder)!r}: it is neither a folder, nor one of {', '.join(names())}, nor "
            "package.module:factory"
        )
    for kind in (CIFAR10, CIFAR100):
        if find_layout(kind, folder) is not None:
            return load_cifar(kind, folder, partial=True)
    side = size or 224
    sides = {"size": side, "resize": round(side * 256 / 224)}
    if (folder / "train").is_dir() and (folder / "val").is_dir():
        return replace(load_imagenet(folder, **sides), name=folder.name)
    images = _images_of(folder)
    if not images and any(entry.is_dir() for entry in folder.iterdir()):
        classes = class_names(folder)
        files = scan(folder, classes)
    elif images:
        classes = []
        files = Files(folder, np.array(list(map(os.fsencode, images))), np.zeros(len(images), np.int64))
    else:
        raise DataError(
            f"{folder} holds no data: neither CIFAR, nor train/ and val/, nor class folders, nor images "
            f"({', '.join(sorted(SUFFIXES))})"
        )
    if len(files.labels) < 2:
        raise DataError(f"{folder} holds one image: one to look at and one to test on are needed")
    places = np.arange(len(files.labels))
    tested = places % min(_HELD_BACK, len(places)) == min(_HELD_BACK, len(places)) - 1
    return ImageFolders(
        name=folder.name,
        classes=tuple(classes),
        mean=MEAN,
        std=STD,
        train=_chosen(files, places[~tested]),
        test=_chosen(files, places[tested]),
        **sides,
    )


def _images_of(folder: Path) -> list[str]:
    return sorted(
        entry.name for entry in folder.iterdir() if entry.suffix[1:].lower() in SUFFIXES and entry.is_file()
    )


def _chosen(files: Files, places: Any) -> Files:
    return Files(files.folder, files.paths[places], files.labels[places])


def _normalised(data: DataSet, mean: Sequence[float] | None, std: Sequence[float] | None) -> DataSet:
    for statistic in (mean, std):
        if statistic and len(statistic) != len(data.mean):
            raise ValueError(f"{len(statistic)} numbers for the {len(data.mean)} channels of {data.name}")
    return replace(data, mean=tuple(mean) if mean else data.mean, std=tuple(std) if std else data.std)


def _of_data_set(
    data: DataSet, seed: int, batch_size: int, augment: Augment, workers: int, *, apart: bool
) -> Found:
    if isinstance(data, ImageFolders):
        augment = replace(augment, resized_crop=bool(augment.padding), padding=0, cutout=0)
    else:  # a crop of small images moves by fewer pixels
        augment = replace(augment, padding=min(augment.padding, min(data.image_shape[1:]) // 8))
    trained, judged = _apart(data) if apart else (data, None)
    plain = trained.train_batches(min(_BATCH, trained.train_size), seed=seed, workers=workers)
    most = min(batch_size, trained.train_size)
    is_one_left = leaves_one(trained.train_size, most)
    training = trained.train_batches(most, seed=seed, augment=augment, drop_last=is_one_left, workers=workers)
    size = 500 if min(data.image_shape[1:]) <= 64 else 100
    test = data.test_batches(size, workers=workers)
    return Found(
        data.name,
        bool(data.classes),
        data.classes,
        _Epoch(plain),
        training,
        _Epoch(plain if judged is None else judged.test_batches(size, workers=workers)),
        _Epoch(test),
        data.mean,
        data.std,
    )


def _apart(data: DataSet) -> tuple[DataSet, DataSet | None]:
    """Without some of its training images, and these as the test part; few images do both."""
    count = data.train_size
    judged = np.arange(count) % max(_HELD_BACK, -(-count // _MOST_JUDGED)) == _HELD_BACK - 1
    if judged.sum() < 2:
        return data, None
    if isinstance(data, ImageFolders):
        trained, rest = (_chosen(data.train, np.flatnonzero(part)) for part in (~judged, judged))
        return replace(data, train=trained), replace(data, test=rest)
    if isinstance(data, Images):
        (images, labels), (others, known) = (
            (data.train_images[part], data.train_labels[part])
            for part in (torch.from_numpy(~judged), torch.from_numpy(judged))
        )
        return (
            replace(data, train_images=images, train_labels=labels),
            replace(data, test_images=others, test_labels=known),
        )
    return data, None  # of another kind, which may not be cut


@dataclass(frozen=True)
class _Epoch:
    """The first epoch of a loader, again and again."""

    loader: Loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader.epoch(0))


@dataclass(frozen=True)
class _Part:
    """Some of the batches of an iterable that has a length, again and again."""

    batches: Any
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.batches), self.start, self.stop)


def _of_batches(name: str, made: Any, *, apart: bool) -> Found:
    """Batches of a factory's: the last eighth is for the test."""
    if isinstance(made, Tensor):
        made = made.split(max(1, min(_BATCH, len(made) // _HELD_BACK)))
    elif isinstance(made, Mapping):
        raise DataError(f"{name} gave one {type(made).__name__}, not a list of batches")
    elif not isinstance(made, Iterable):
        raise DataError(f"{name} gave a {type(made).__name__}: neither a DataSet nor batches of inputs")
    elif isinstance(made, Iterator) or not has_length(made):
        made = list(made)
    if isinstance(made, DataLoader) and isinstance(made.sampler, RandomSampler):
        raise DataError(f"{name} gave a DataLoader that shuffles, so that test inputs do not stay apart")
    count = len(made)
    if count < 2:
        raise DataError(
            f"{name} gave {count} batch{'es' * (count != 1)}: one at least to test on is needed too"
        )
    tested = max(1, count // _HELD_BACK)
    seen = count - tested
    judged = max(1, seen // _HELD_BACK) if apart and seen > 1 else 0  # a lone batch does both
    part = _Part(made, 0, seen - judged)
    rest = _Part(made, seen - judged, seen) if judged else part
    return Found(name, True, (), part, part, rest, _Part(made, seen, count))
