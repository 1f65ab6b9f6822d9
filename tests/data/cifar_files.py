"""Small CIFAR files in both layouts; the pickles are spelt as Python 2 wrote the official ones."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.data.cifar import CIFAR10, Cifar

_ARRAY = b"cnumpy.core.multiarray\n_reconstruct\nq\x01(cnumpy\nndarray\nq\x02(K\x00tU\x01btR(K\x01("
_UINT8 = b"cnumpy\ndtype\nq\x03(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def python2_pickle(value: object) -> bytes:
    """Protocol 2, as Python 2's cPickle writes it: every string is a byte string."""
    return b"\x80\x02" + _pickled(value) + b"."


def _pickled(value: object) -> bytes:
    match value:
        case int():
            return b"J" + struct.pack("<i", value)
        case bytes():
            return b"T" + struct.pack("<i", len(value)) + value
        case list():
            return b"](" + b"".join(map(_pickled, value)) + b"e"
        case dict():
            return b"}(" + b"".join(_pickled(key) + _pickled(item) for key, item in value.items()) + b"u"
        case np.ndarray():
            shape = b"".join(map(_pickled, value.shape))
            return _ARRAY + shape + b"t" + _UINT8 + b"I00\n" + _pickled(value.tobytes()) + b"tb"
    raise TypeError(type(value))


def records(kind: Cifar, count: int, seed: int) -> tuple[NDArray[np.uint8], list[int]]:
    """(count, 3072) pixels and as many labels."""
    random = np.random.default_rng(seed)
    images = random.integers(256, size=(count, 3072), dtype=np.uint8)
    return images, random.integers(len(kind.classes), size=count).tolist()


def write_part(kind: Cifar, layout: str, path: Path, images: NDArray[np.uint8], labels: list[int]) -> None:
    if layout == "python":
        content = {b"batch_label": b"made up", kind.label_key.encode(): labels, b"data": images}
        if kind is not CIFAR10:
            content[b"coarse_labels"] = [label // 5 for label in labels]
        path.write_bytes(python2_pickle(content))
        return
    columns = [np.array([label // 5 for label in labels], np.uint8)] * (kind.label_bytes - 1)
    columns.append(np.array(labels, np.uint8))
    path.write_bytes(np.column_stack([*columns, images]).tobytes())


def write_cifar(kind: Cifar, layout: str, folder: Path, count: int = 4) -> Path:
    """The top folder of a small CIFAR, below `folder`: `count` images in each file."""
    files = kind.layouts[layout]
    top = folder / files.top
    top.mkdir(parents=True)
    for seed, name in enumerate((*files.train, files.test)):
        write_part(kind, layout, top / name, *records(kind, count, seed))
    return top
