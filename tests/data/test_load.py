"""Data sets by name, what they have in common, and digits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cifar_files import write_cifar

from understudy.data import Augment, DataError, Images, facts, load, names
from understudy.data.cifar import CIFAR10


def digits() -> Images:
    pytest.importorskip("sklearn")
    data = load("digits")
    assert isinstance(data, Images)
    return data


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"no data set 'cifar-10' \(did you mean 'cifar10'.*\); legal are cifar10, "
    ):
        load("cifar-10")
    with pytest.raises(ValueError, match="no data set 'xyz'; legal are"):
        load("xyz")
    assert names() == ["cifar10", "cifar100", "digits", "imagenet"]


def test_digits_are_split_by_file_order_and_the_same_every_time() -> None:
    data, again = digits(), digits()
    assert (data.train_size, data.test_size, data.image_shape) == (1297, 500, (3, 8, 8))
    assert torch.equal(data.train_images, again.train_images)
    assert data.train_labels[:10].tolist() == list(range(10))
    assert int(torch.bincount(data.test_labels).min()) >= 40
    assert len(data.classes) == 10


def test_digits_use_the_whole_range_of_a_byte_on_three_equal_channels() -> None:
    images = digits().train_images
    assert (int(images.min()), int(images.max())) == (0, 255)
    assert torch.equal(images[:, 0], images[:, 1])
    assert torch.equal(images[:, 0], images[:, 2])


def test_normalised_digits_have_mean_0_and_deviation_1() -> None:
    data = digits()
    images, _labels = next(data.train_batches(data.train_size, seed=0).epoch(0))
    assert float(images.mean()) == pytest.approx(0, abs=1e-3)
    assert float(images.std()) == pytest.approx(1, abs=1e-3)


def test_digits_need_no_folder_and_name_their_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="give neither a folder nor download"):
        load("digits", tmp_path)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=r"pip install 'understudy\[demo\]' brings it"):
        load("digits")


def test_cifar_is_looked_for_in_the_cache_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        DataError, match=rf"{tmp_path}/\.cache/understudy is not a folder: cifar10 is not there"
    ):
        load("cifar10")
    write_cifar(CIFAR10, "binary", tmp_path / ".cache" / "understudy")
    assert load("cifar10", partial=True).train_size == 20
    assert load("cifar10", "~/.cache/understudy", partial=True).train_size == 20


def test_imagenet_needs_a_folder_and_is_not_downloaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="imagenet needs a folder, with train/ and val/ in it"):
        load("imagenet")
    with pytest.raises(ValueError, match="imagenet cannot be downloaded"):
        load("imagenet", tmp_path, download=True)
    with pytest.raises(ValueError, match=r"size 300 is not in 1\.\.256"):
        load("imagenet", tmp_path, size=300)


def test_an_unknown_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="layout 'matlab' is not one of binary, python"):
        load("cifar10", tmp_path, layout="matlab")


def test_the_statistics_of_a_data_set_can_be_replaced(tmp_path: Path) -> None:
    write_cifar(CIFAR10, "binary", tmp_path)
    data = load("cifar10", tmp_path, partial=True, mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0])
    assert isinstance(data, Images)
    images, _labels = next(data.test_batches(4).epoch(0))
    assert torch.equal(images, data.test_images.float() / 255)
    with pytest.raises(ValueError, match="1 numbers for the 3 channels of cifar10"):
        load("cifar10", tmp_path, partial=True, std=[1.0])


def made(**changes: Any) -> Images:
    fields: dict[str, Any] = {
        "name": "made",
        "classes": ("a", "b"),
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
        "train_images": torch.zeros(6, 3, 4, 4, dtype=torch.uint8),
        "train_labels": torch.tensor([0, 1, 0, 1, 0, 1]),
        "test_images": torch.zeros(3, 3, 4, 4, dtype=torch.uint8),
        "test_labels": torch.tensor([0, 1, 1]),
    }
    return Images(**(fields | changes))


def test_images_that_do_not_fit_together_are_refused_with_their_part() -> None:
    with pytest.raises(DataError, match=r"made, test part: label 2 is not in 0\.\.1 for 2 classes"):
        made(test_labels=torch.tensor([0, 1, 2]))
    with pytest.raises(DataError, match="made, train part: the data set is empty"):
        made(train_images=torch.zeros(0, 3, 4, 4, dtype=torch.uint8), train_labels=torch.tensor([]).long())
    with pytest.raises(DataError, match=r"training images are \(3, 4, 4\), test images \(3, 5, 4\)"):
        made(test_images=torch.zeros(3, 3, 5, 4, dtype=torch.uint8))


def test_a_network_with_another_number_of_outputs_is_refused() -> None:
    made().check_classes(2)
    with pytest.raises(ValueError, match="made has 2 classes, but the network 10 outputs"):
        made().check_classes(10)


def test_taking_some_images_takes_the_first() -> None:
    few = made().take(train=3, test=1)
    assert (few.train_labels.tolist(), few.test_labels.tolist()) == ([0, 1, 0], [0])
    assert (made().take(train=3).test_size, made().take(test=1).train_size) == (3, 6)
    for count in (0, 4):
        with pytest.raises(ValueError, match=rf"{count} test images is not in 1\.\.3"):
            made().take(test=count)


def test_a_batch_may_exceed_the_test_part_but_not_the_training_part() -> None:
    assert [len(labels) for _images, labels in made().test_batches(500).epoch(0)] == [3]
    with pytest.raises(ValueError, match=r"batch size 500 is not in 1\.\.6"):
        made().train_batches(500, seed=0)


def test_training_batches_pass_every_option_on() -> None:
    augment = Augment(padding=1)
    batches = made().train_batches(
        4, seed=3, augment=augment, drop_last=True, rank=1, world_size=2, device="cpu", workers=2
    )
    sampler = batches.sampler
    assert (sampler.batch_size, sampler.seed, sampler.shuffle, sampler.drop_last) == (4, 3, True, True)
    assert (sampler.rank, sampler.world_size, batches.augment) == (1, 2, augment)
    share = made().test_batches(3, rank=1, world_size=2).sampler
    assert (share.rank, share.world_size, share.shuffle) == (1, 2, False)


def test_importing_the_package_imports_no_extra_and_no_progress_bar() -> None:
    code = (
        "import sys, torch; before = set(sys.modules); import understudy.data; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new & {'sklearn', 'torchvision', 'PIL', 'rich', 'timm', 'scipy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_facts_of_a_data_set_are_known_without_reading_it(tmp_path: Path) -> None:
    digits = load("digits")
    assert facts("digits") == (len(digits.classes), digits.image_shape)
    assert facts("cifar100") == (100, (3, 32, 32))
    assert facts("imagenet") == (1000, (3, 224, 224))
    for name in ("cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
    assert facts("imagenet", tmp_path) == (2, (3, 224, 224))
    with pytest.raises(ValueError, match=r"no data set 'digit' \(did you mean 'digits'"):
        facts("digit")


MADE = """
import torch
from understudy.data import Images

def make(folder=None, count=6):
    images = torch.zeros(count, 1, 4, 5, dtype=torch.uint8)
    return Images(name=str(folder), classes=("a", "b", "c"), mean=(0.5,), std=(0.5,),
                  train_images=images, train_labels=torch.zeros(count, dtype=torch.long),
                  test_images=images, test_labels=torch.zeros(count, dtype=torch.long))

def number():
    return 7

def needs(width):
    return width
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_data.py").write_text(MADE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("factory")
def test_a_data_set_may_come_from_a_factory_and_says_its_own_facts() -> None:
    for place in ("made_data:make", "./made_data.py:make"):
        assert facts(place) == (3, (1, 4, 5))
        assert load(place, count=4).train_size == 4
    assert load("made_data:make", "here").name == "here"
    assert load("made_data:make", mean=[0.25]).mean == (0.25,)


@pytest.mark.usefixtures("factory")
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("nowhere:make", "no data set 'nowhere:make': no module 'nowhere'"),
        ("made_data:mak", "made_data:mak does not exist .*'make'"),
        ("made_data:MADE", "does not exist"),
        ("made_data:number", "made_data:number gave a int, not an understudy.data.DataSet"),
        ("made_data:needs", "made_data:needs cannot be called: .*width"),
        ("made.py:make", "no file .*made.py"),
    ],
)
def test_a_factory_that_gives_no_data_set_is_named(place: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        facts(place)
    with pytest.raises(ValueError, match="nothing to download"):
        load(place, download=True)
