"""CIFAR-10 and CIFAR-100 from the official files, in the binary or the Python layout.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .archive import fetch
from .images import DataError, Images
from .pickles import read_pickle

BASE_URL = "https://www.cs.toronto.edu/~kriz"
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32

Arrays = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (N, 3072), (N,)


@dataclass(frozen=True)
class Layout:
    """One way the files are published: an archive with a top folder."""

    archive: str
    md5: str
    top: str
    train: tuple[str, ...]
    test: str
    pickled: bool


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets; of the label bytes of a binary record the last one counts."""

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    label_bytes: int
    label_key: str
    layouts: dict[str, Layout]


_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CIFAR10 = Cifar(
    name="cifar10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    label_bytes=1,
    label_key="labels",
    layouts={
        "binary": Layout(
            archive="cifar-10-binary.tar.gz",
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            top="cifar-10-batches-bin",
            train=tuple(f"{batch}.bin" for batch in _BATCHES),
            test="test_batch.bin",
            pickled=False,
        ),
        "python": Layout(
            archive="cifar-10-python.tar.gz",
            md5="c58f30108f718f92721af3b95e74349a",
            top="cifar-10-batches-py",
            train=_BATCHES,
            test="test_batch",
            pickled=True,
        ),
    },
)

CIFAR100 = Cifar(
    name="cifar100",
    classes=tuple(_FINE.split()),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    label_bytes=2,  # the coarse label, then the fine one
    label_key="fine_labels",
    layouts={
        "binary": Layout(
            archive="cifar-100-binary.tar.gz",
            md5="03b5dce01913d631647c71ecec9e9cb8",
            top="cifar-100-binary",
            train=("train.bin",),
            test="test.bin",
            pickled=False,
        ),
        "python": Layout(
            archive="cifar-100-python.tar.gz",
            md5="eb9058c3a382ffc7106e4002c42a8d85",
            top="cifar-100-python",
            train=("train",),
            test="test",
            pickled=True,
        ),
    },
)


def load_cifar(
    kind: Cifar,
    folder: Path,
    *,
    download: bool = False,
    layout: str = "binary",
    base_url: str = BASE_URL,
    partial: bool = False,
    progress: bool = True,
) -> Images:
    """Read a CIFAR from `folder`, which holds the published top folder or is it.

    `download` fetches the archive of `layout` where neither layout is found. Fewer test images than published
    are accepted; fewer training images only if `partial`.
    """
    if layout not in kind.layouts:
        raise ValueError(f"layout {layout!r} is not one of {', '.join(kind.layouts)}")
    found = find_layout(kind, folder)
    if found is None and download:
        wanted = kind.layouts[layout]
        url = f"{base_url.rstrip('/')}/{wanted.archive}"
        found = wanted, fetch(url, folder, wanted.md5, top=wanted.top, progress=progress)
    if found is None:
        tops = " or ".join(f"{layout.top}/" for layout in kind.layouts.values())
        state = f"holds no {tops}" if folder.is_dir() else "is not a folder"
        raise DataError(f"{folder} {state}: {kind.name} is not there; download=True (--download) fetches it")
    layout_found, top = found
    expected = 50_000 // len(layout_found.train)
    train = [_read(kind, layout_found, top / name) for name in layout_found.train]
    for name, (images, _labels) in zip(layout_found.train, train, strict=True):
        if len(images) != expected and not partial:
            raise DataError(
                f"{top / name} holds {len(images):,} images, expected {expected:,}; partial=True accepts it"
            )
    train_images, train_labels = _join(train)
    test_images, test_labels = _join([_read(kind, layout_found, top / layout_found.test)])
    return Images(
        name=kind.name,
        classes=kind.classes,
        mean=kind.mean,
        std=kind.std,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )


def find_layout(kind: Cifar, folder: Path) -> tuple[Layout, Path] | None:
    """The first layout whose top folder is below `folder`, or is it."""
    for layout in kind.layouts.values():
        if (folder / layout.top).is_dir():
            return layout, folder / layout.top
        if folder.name == layout.top and folder.is_dir():
            return layout, folder
    return None


def _read(kind: Cifar, layout: Layout, path: Path) -> Arrays:
    if not path.is_file():
        needed = ", ".join((*layout.train, layout.test))
        raise DataError(f"{path} is missing; {kind.name} needs {needed}")
    images, labels = _read_pickled(kind, path) if layout.pickled else _read_binary(kind, path)
    wrong = np.flatnonzero((labels < 0) | (labels >= len(kind.classes)))
    if len(wrong):
        raise DataError(
            f"{path}: image {wrong[0]} has label {labels[wrong[0]]}, expected 0..{len(kind.classes) - 1}"
        )
    return images, labels


def _read_binary(kind: Cifar, path: Path) -> Arrays:
    """Records of one or two label bytes, then the planes R, G, B of 32 × 32 bytes each."""
    record = kind.label_bytes + PIXELS
    content = np.fromfile(path, dtype=np.uint8)
    if not len(content) or len(content) % record:
        raise DataError(
            f"{path} has {len(content):,} bytes, expected a whole number of images of {record:,} bytes"
        )
    records = content.reshape(-1, record)
    return records[:, kind.label_bytes :], records[:, kind.label_bytes - 1].astype(np.int64)


def _read_pickled(kind: Cifar, path: Path) -> Arrays:
    """A dict with `data`, (N, 3072) bytes, and a list of N labels."""
    content = read_pickle(path)
    for key in ("data", kind.label_key):
        if key not in content:
            raise DataError(
                f"{path} holds {', '.join(sorted(content)) or 'nothing'}, expected {key!r} as well"
            )
    images, labels = content["data"], content[kind.label_key]
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != PIXELS or not len(images):
        shape = images.shape if isinstance(images, np.ndarray) else type(images).__name__
        raise DataError(f"{path}: data are {shape}, expected (images, {PIXELS})")
    if not isinstance(labels, list) or any(type(label) is not int for label in labels):
        raise DataError(f"{path}: {kind.label_key} is not a list of whole numbers")
    if len(labels) != len(images):
        raise DataError(f"{path} holds {len(images):,} images, but {len(labels):,} labels")
    try:
        return images, np.array(labels, dtype=np.int64)
    except OverflowError as error:
        raise DataError(f"{path}: {kind.label_key} holds a number beyond 64 bits") from error


def _join(parts: Iterable[Arrays]) -> tuple[Tensor, Tensor]:
    images, labels = zip(*parts, strict=True)
    pixels = np.concatenate(images).reshape(-1, *SHAPE)  # copies, so the tensor may be written to
    return torch.from_numpy(pixels), torch.from_numpy(np.concatenate(labels))
