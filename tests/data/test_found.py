"""Data for a trained network: what lies in a folder is found out, and labels are not needed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cifar_files import write_cifar
from PIL import Image

from understudy.data import Augment, DataError
from understudy.data.cifar import CIFAR10, CIFAR100
from understudy.data.found import find_data


def images(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (40, 36), (number, 0, 0)).save(folder / f"{number}.png")


def sizes(batches: Any) -> tuple[int, ...]:
    """Of all batches together."""
    return tuple(torch.cat([batch[0] for batch in batches]).shape)


@pytest.mark.parametrize("layout", ["binary", "python"])
@pytest.mark.parametrize("kind", [CIFAR10, CIFAR100])
def test_cifar_is_found_in_a_folder_or_above_it(kind: Any, layout: str, tmp_path: Path) -> None:
    top = write_cifar(kind, layout, tmp_path, count=4)
    for folder in (top, tmp_path):
        found = find_data(str(folder), mean=(0.5, 0.5, 0.5))
        assert (found.name, found.classes) == (kind.name, kind.classes)
        assert (found.mean, found.std) == ((0.5, 0.5, 0.5), kind.std)
    assert sizes(found.inputs) == (4 * len(kind.layouts[layout].train), 3, 32, 32)
    assert sizes(found.test) == sizes(found.test) == (4, 3, 32, 32)


def test_folders_of_images_in_three_forms(tmp_path: Path) -> None:
    for part, count in (("train", 3), ("val", 2)):
        for name in ("a", "b"):
            images(tmp_path / "parts" / part / name, count)
            if part == "train":
                images(tmp_path / "classes" / name, 8)
    images(tmp_path / "alone", 9)
    crop = Augment(padding=4, flip=True)
    parts, classes, alone = (
        find_data(str(tmp_path / name), size=32, augment=crop) for name in ("parts", "classes", "alone")
    )
    assert (sizes(parts.inputs), sizes(parts.test)) == ((6, 3, 32, 32), (4, 3, 32, 32))
    assert (sizes(classes.inputs), sizes(classes.test)) == ((14, 3, 32, 32), (2, 3, 32, 32))
    assert (sizes(alone.inputs), sizes(alone.test)) == ((8, 3, 32, 32), (1, 3, 32, 32))
    assert parts.classes == classes.classes == ("a", "b")
    assert parts.labelled
    assert not alone.labelled
    assert sizes(alone.training.epoch(0)) == (8, 3, 32, 32)  # type: ignore[union-attr]
    assert sizes(alone.judged) == (8, 3, 32, 32)  # too few to be set apart


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_images_may_be_called_by_bytes_that_are_no_text(tmp_path: Path) -> None:
    images(tmp_path / "alone", 9)
    (tmp_path / "alone" / "0.png").rename(tmp_path / "alone" / os.fsdecode(b"\xff.png"))
    found = find_data(str(tmp_path / "alone"), size=32)
    assert sizes(found.inputs)[0] + sizes(found.test)[0] == 9


def test_some_training_images_are_set_apart_to_judge_by(tmp_path: Path) -> None:
    images(tmp_path / "alone", 40)
    for source, options in ((str(tmp_path / "alone"), {"size": 32}), ("digits", {})):
        found, everything = (find_data(source, apart=apart, **options) for apart in (True, False))  # type: ignore[arg-type]
        trained, judged, seen, whole = (
            {image.numpy().tobytes() for batch in part for image in batch[0]}
            for part in (found.training.epoch(0), found.judged, found.inputs, everything.inputs)  # type: ignore[union-attr]
        )
        assert len(judged) > 1
        assert not trained & judged
        assert seen == trained
        assert trained | judged == whole
        assert len(judged) == pytest.approx(len(whole) / 8, rel=0.3)


def test_batches_of_a_factory_are_cut_in_two(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def tensor(): return torch.arange(80.0)[:, None]\n"
        "def stream(): return (torch.ones(2, 3) for _ in range(9))\n"
        "def one(): return {'x': torch.ones(2, 3)}\n"
        "class S(torch.utils.data.IterableDataset):\n"
        "    def __iter__(self): return iter(torch.ones(18, 3))\n"
        "def loader(): return torch.utils.data.DataLoader(S(), 2)\n"
    )
    found = find_data(f"{tmp_path}/mine.py:tensor")
    assert torch.cat(list(found.inputs)).shape == torch.cat(list(found.judged)).shape == (70, 1)
    assert float(torch.cat(list(found.test)).min()) == 70
    stream = find_data(f"{tmp_path}/mine.py:stream")
    loader = find_data(f"{tmp_path}/mine.py:loader")
    for other in (stream, loader):
        assert [len(list(part)) for part in (other.inputs, other.test, other.inputs)] == [8, 1, 8]
    apart = find_data(f"{tmp_path}/mine.py:tensor", apart=True)
    trained, judged = (torch.cat(list(part)) for part in (apart.training, apart.judged))  # type: ignore[arg-type]
    assert torch.equal(torch.cat([trained, judged]), torch.cat(list(found.inputs)))
    assert torch.equal(torch.cat(list(apart.inputs)), trained)  # nor is the fit seen by what judges it
    assert len(judged) == 10
    assert torch.equal(torch.cat(list(apart.test)), torch.cat(list(found.test)))
    with pytest.raises(DataError, match="gave one dict, not a list of batches"):
        find_data(f"{tmp_path}/mine.py:one")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: folder.mkdir(), "holds no data: neither CIFAR, nor train/ and val/"),
        (lambda folder: images(folder, 1), "holds one image"),
        (lambda _: None, "it is neither a folder, nor one of cifar10"),
    ],
)
def test_a_folder_without_data_is_refused(make: Any, words: str, tmp_path: Path) -> None:
    make(tmp_path / "data")
    with pytest.raises(DataError, match=words):
        find_data(str(tmp_path / "data"))
    with pytest.raises(ValueError, match="2 numbers for the 3 channels of digits"):
        find_data("digits", mean=(0.5, 0.5))
