"""CIFAR files in both layouts, whole, damaged and hostile."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cifar_files import python2_pickle, records, write_cifar, write_part
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from understudy.data import DataError, load
from understudy.data.cifar import CIFAR10, CIFAR100, Cifar
from understudy.data.pickles import read_pickle

KINDS = pytest.mark.parametrize("kind", [CIFAR10, CIFAR100], ids=lambda kind: kind.name)
LAYOUTS = pytest.mark.parametrize("layout", ["binary", "python"])


@KINDS
@LAYOUTS
def test_both_layouts_give_the_images_and_labels_written(kind: Cifar, layout: str, tmp_path: Path) -> None:
    write_cifar(kind, layout, tmp_path)
    data: Any = load(kind.name, tmp_path, partial=True)
    files = kind.layouts[layout].train
    assert (data.train_size, data.test_size, data.image_shape) == (4 * len(files), 4, (3, 32, 32))
    for number in range(len(files)):
        images, labels = records(kind, 4, number)
        part = slice(4 * number, 4 * number + 4)
        assert torch.equal(data.train_images[part], torch.from_numpy(images.reshape(4, 3, 32, 32)))
        assert data.train_labels[part].tolist() == labels
    images, labels = records(kind, 4, len(files))
    assert torch.equal(data.test_images, torch.from_numpy(images.reshape(4, 3, 32, 32)))
    assert data.test_labels.tolist() == labels
    assert len(data.classes) == len(set(data.classes)) == (10 if kind is CIFAR10 else 100)


def test_the_planes_are_red_green_and_blue_row_by_row(tmp_path: Path) -> None:
    top = write_cifar(CIFAR10, "binary", tmp_path)
    record = bytes([3]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes(range(256)) * 4
    (top / "test_batch.bin").write_bytes(record)
    data: Any = load("cifar10", tmp_path, partial=True)
    image = data.test_images[0]
    assert (int(data.test_labels[0]), int(image[0].min()), int(image[1].max())) == (3, 1, 2)
    assert image[2, 1].tolist() == list(range(32, 64))


def test_the_top_folder_itself_may_be_given(tmp_path: Path) -> None:
    top = write_cifar(CIFAR100, "python", tmp_path)
    assert load("cifar100", top, partial=True).train_size == 4


def test_training_files_must_be_whole_and_test_files_need_not(tmp_path: Path) -> None:
    top = write_cifar(CIFAR100, "binary", tmp_path)
    expected = r"train\.bin holds 4 images, expected 50,000; partial=True accepts it"
    with pytest.raises(DataError, match=expected):
        load("cifar100", tmp_path)
    np.zeros((50_000, 3074), np.uint8).tofile(top / "train.bin")
    data = load("cifar100", tmp_path)
    assert (data.train_size, data.test_size) == (50_000, 4)


@KINDS
def test_a_missing_folder_is_named_with_what_it_should_hold(kind: Cifar, tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"absent is not a folder: cifar100? is not there; download=True \(--download\) fetches",
    ):
        load(kind.name, tmp_path / "absent")
    tops = " or ".join(f"{layout.top}/" for layout in kind.layouts.values())
    with pytest.raises(DataError, match=f"holds no {tops}"):
        load(kind.name, tmp_path)


@LAYOUTS
def test_a_missing_file_is_named(layout: str, tmp_path: Path) -> None:
    top = write_cifar(CIFAR10, layout, tmp_path)
    files = CIFAR10.layouts[layout]
    (top / files.train[2]).unlink()
    with pytest.raises(
        DataError, match=rf"{files.train[2]} is missing; cifar10 needs data_batch_1.*test_batch"
    ):
        load("cifar10", tmp_path, partial=True)


@pytest.mark.parametrize("size", [0, 1, 3072, 3074])
def test_a_binary_file_of_wrong_size_is_refused_with_both_sizes(size: int, tmp_path: Path) -> None:
    top = write_cifar(CIFAR10, "binary", tmp_path)
    (top / "data_batch_2.bin").write_bytes(bytes(size))
    message = rf"data_batch_2\.bin has {size:,} bytes, expected a whole number of images of 3,073 bytes"
    with pytest.raises(DataError, match=message):
        load("cifar10", tmp_path, partial=True)


@KINDS
@LAYOUTS
def test_a_label_out_of_range_is_refused_with_its_place(kind: Cifar, layout: str, tmp_path: Path) -> None:
    top = write_cifar(kind, layout, tmp_path)
    images, labels = records(kind, 4, 0)
    classes = len(kind.classes)
    labels[2] = classes
    name = kind.layouts[layout].test
    write_part(kind, layout, top / name, images, labels)
    with pytest.raises(DataError, match=rf"{name}: image 2 has label {classes}, expected 0\.\.{classes - 1}"):
        load(kind.name, tmp_path, partial=True)


IMAGES = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": IMAGES}, "holds data, expected 'labels' as well"),
        ({b"labels": [1, 2]}, "holds labels, expected 'data' as well"),
        ({b"data": IMAGES[:, :99], b"labels": [1, 2]}, r"data are \(2, 99\), expected \(images, 3072\)"),
        ({b"data": IMAGES[:0], b"labels": []}, r"data are \(0, 3072\)"),
        ({b"data": b"pixels", b"labels": [1]}, "data are bytes"),
        ({b"data": IMAGES, b"labels": [1]}, "holds 2 images, but 1 labels"),
        ({b"data": IMAGES, b"labels": [1, b"2"]}, "labels is not a list of whole numbers"),
        ({b"data": IMAGES, b"labels": b"12"}, "labels is not a list of whole numbers"),
        ({b"data": IMAGES, b"labels": [1, -1]}, r"image 1 has label -1, expected 0\.\.9"),
        ([1, 2], "holds a list, expected a dict"),
        ({3: [1]}, "has a int for a key"),
    ],
)
def test_a_pickle_of_other_content_is_refused(content: object, message: str, tmp_path: Path) -> None:
    top = write_cifar(CIFAR10, "python", tmp_path)
    (top / "test_batch").write_bytes(python2_pickle(content))
    with pytest.raises(DataError, match=f"test_batch:? {message}"):
        load("cifar10", tmp_path, partial=True)


@pytest.mark.filterwarnings("ignore:numpy.core:DeprecationWarning")
def test_the_pickles_of_these_tests_are_what_pickle_itself_reads() -> None:
    images, labels = records(CIFAR10, 3, 0)
    found = pickle.loads(python2_pickle({b"data": images, b"labels": labels}), encoding="bytes")
    assert found[b"labels"] == labels
    assert found[b"data"].dtype == np.uint8
    assert np.array_equal(found[b"data"], images)


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_pickle_written_by_python_3_is_read_too(protocol: int, order: Any, tmp_path: Path) -> None:
    images = np.array(records(CIFAR10, 3, 0)[0], order=order)
    (tmp_path / "file").write_bytes(pickle.dumps({"data": images, "labels": [1, 2]}, protocol=protocol))
    found = read_pickle(tmp_path / "file")
    assert np.array_equal(found["data"], images)
    assert found["labels"] == [1, 2]


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "hostile",
    [
        Call(os.system, "touch {mark}"),
        Call(subprocess.call, ["touch", "{mark}"]),
        Call(eval, "open('{mark}', 'w')"),
        Call(getattr, "", "join"),
        Call(np.load, "{mark}"),
        Call(np.zeros, 3),
        Call(sys.exit, 3),
        Path("{mark}"),
        np.dtype("O").type,
        1j,
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, Call) else value.call[0].__name__,
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_asks_for_anything_else_is_refused_and_runs_nothing(
    hostile: Any, protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raw = pickle.dumps({"data": hostile}, protocol=protocol)
    Path("file").write_bytes(raw.replace(b"{mark}", b"./mark"))
    message = r"file is not a CIFAR pickle: it asks for \S+, which no CIFAR file holds"
    with pytest.raises(DataError, match=message):
        read_pickle(Path("file"))
    assert not Path("mark").exists()


def test_an_array_of_objects_or_other_numbers_is_refused(tmp_path: Path) -> None:
    for dtype in (np.int64, object, np.float32, "S3"):
        (tmp_path / "file").write_bytes(pickle.dumps({"data": np.zeros(3, dtype)}, protocol=4))
        with pytest.raises(DataError, match="holds an array that is not of uint8"):
            read_pickle(tmp_path / "file")


def test_a_number_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    top = write_cifar(CIFAR10, "python", tmp_path)
    (top / "test_batch").write_bytes(pickle.dumps({"data": IMAGES, "labels": [1, 2**99]}, protocol=4))
    with pytest.raises(DataError, match="labels holds a number beyond 64 bits"):
        load("cifar10", tmp_path, partial=True)


SMALL = python2_pickle({b"data": np.zeros((2, 3), np.uint8), b"labels": [1, 2]})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(place=st.integers(0, len(SMALL) - 1), new=st.binary(max_size=3), cut=st.integers(0, 3))
def test_a_damaged_pickle_is_read_or_refused_but_never_crashes(
    place: int, new: bytes, cut: int, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(SMALL[:place] + new + SMALL[place + cut :])
    with contextlib.suppress(DataError):
        assert isinstance(read_pickle(tmp_path / "file"), dict)


def test_a_truncated_pickle_is_refused(tmp_path: Path) -> None:
    for length in range(len(SMALL)):
        (tmp_path / "file").write_bytes(SMALL[:length])
        with pytest.raises(DataError, match="file is not a CIFAR pickle"):
            read_pickle(tmp_path / "file")
