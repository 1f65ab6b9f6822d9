"""Data sets by name, and batches of them that follow from (seed, epoch, step) alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from understudy._util.factories import FactoryError, call_factory
from understudy._util.nearest import hint

from .augment import Augment
from .batches import Batches
from .cifar import CIFAR10, CIFAR100, Cifar, load_cifar
from .digits import load_digits
from .imagenet import ImageFolders, class_names, load_imagenet
from .images import DataError, DataSet, Images
from .sampler import Loader, Sampler

__all__ = [
    "Augment",
    "Batches",
    "DataError",
    "DataSet",
    "Facts",
    "ImageFolders",
    "Images",
    "Loader",
    "Sampler",
    "facts",
    "load",
    "names",
]


def names() -> list[str]:
    """The data sets `load` knows.

    >>> from understudy import data
    >>> data.names()
    ['cifar10', 'cifar100', 'digits', 'imagenet']
    """
    return sorted(_DATA_SETS)


def load(
    name: str,
    folder: str | Path | None = None,
    *,
    download: bool = False,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    **options: Any,
) -> DataSet:
    """A data set by name: `digits`, `cifar10`, `cifar100`, `imagenet`, or `package.module:factory`.

    `digits` comes with scikit-learn. CIFAR is read from `folder`, by default ~/.cache/understudy, where
    `download` puts it; options are `layout`, `base_url`, `partial` and `progress`. `imagenet` is a folder
    with train/ and val/; options are `size` and `resize`. A factory (or `path/to/file.py:factory`) gives a
    DataSet, such as `Images`; it is called with the options, and with `folder` where one is given. `mean` and
    `std` replace those of the data set.

    >>> from understudy import data
    >>> digits = data.load("digits")
    >>> len(digits.classes), digits.image_shape, digits.train_size, digits.test_size
    (10, (3, 8, 8), 1297, 500)
    """
    _check_name(name)
    make = partial(_from_factory, name) if ":" in name else _DATA_SETS[name]
    data = make(None if folder is None else Path(folder).expanduser(), download, **options)
    for statistic in (mean, std):
        if statistic is not None and len(statistic) != len(data.mean):
            raise ValueError(f"{len(statistic)} numbers for the {len(data.mean)} channels of {name}")
    return replace(
        data,
        mean=data.mean if mean is None else tuple(mean),
        std=data.std if std is None else tuple(std),
    )


class Facts(NamedTuple):
    """What a network has to know of a data set.

    >>> from understudy import data
    >>> data.facts("cifar100").classes
    100
    """

    classes: int
    image_shape: tuple[int, int, int]


def facts(name: str, folder: str | Path | None = None) -> Facts:
    """The classes and the image shape of a data set, without reading it; it need not be there.

    `imagenet` has as many classes as `folder` has, where one is given, and otherwise 1,000. A data set from a
    factory says it itself, once it is made.

    >>> from understudy import data
    >>> data.facts("imagenet")
    Facts(classes=1000, image_shape=(3, 224, 224))
    """
    _check_name(name)
    if ":" in name:
        made = load(name, folder)
        return Facts(len(made.classes), made.image_shape)
    if name == "imagenet" and folder is not None:
        return Facts(len(class_names(Path(folder).expanduser() / "train")), _FACTS[name].image_shape)
    return _FACTS[name]


def _check_name(name: str) -> None:
    if name not in _DATA_SETS and ":" not in name:
        raise ValueError(
            f"no data set {name!r}{hint(name, names())}; legal are {', '.join(names())} and "
            "package.module:factory"
        )


def _from_factory(place: str, folder: Path | None, download: bool, **options: Any) -> DataSet:
    if download:
        raise ValueError(f"{place} is made by its factory: there is nothing to download")
    try:
        made = call_factory(place, **options, **({} if folder is None else {"folder": folder}))
    except FactoryError as error:
        raise DataError(f"no data set {place!r}: {error}") from error
    if not isinstance(made, DataSet):
        raise DataError(f"{place} gave a {type(made).__name__}, not an understudy.data.DataSet")
    return made


def _digits(folder: Path | None, download: bool) -> Images:
    if folder is not None or download:
        raise ValueError("digits come with scikit-learn: give neither a folder nor download")
    return load_digits()


def _cifar(kind: Cifar, folder: Path | None, download: bool, **options: Any) -> Images:
    return load_cifar(kind, folder or Path.home() / ".cache" / "understudy", download=download, **options)


def _imagenet(folder: Path | None, download: bool, **options: Any) -> ImageFolders:
    if download:
        raise ValueError("imagenet cannot be downloaded without an account: https://image-net.org")
    if folder is None:
        raise ValueError("imagenet needs a folder, with train/ and val/ in it")
    return load_imagenet(folder, **options)


_DATA_SETS: dict[str, Callable[..., DataSet]] = {
    "cifar10": partial(_cifar, CIFAR10),
    "cifar100": partial(_cifar, CIFAR100),
    "digits": _digits,
    "imagenet": _imagenet,
}
_FACTS = {
    "cifar10": Facts(len(CIFAR10.classes), (3, 32, 32)),
    "cifar100": Facts(len(CIFAR100.classes), (3, 32, 32)),
    "digits": Facts(10, (3, 8, 8)),
    "imagenet": Facts(1000, (3, 224, 224)),
}
