"""Class folders: what is found, how it is decoded, and that every image follows from (seed, epoch, index)."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.data import Augment, DataError, ImageFolders, load

Image = pytest.importorskip("PIL.Image")
functional = pytest.importorskip("torchvision.transforms.functional")

PAPER = Augment(resized_crop=True, flip=True)


def picture(seed: int) -> Any:
    """Smooth, so that scaling means something; every one of another shape."""
    random = np.random.default_rng(seed)
    coarse = random.integers(256, size=(5, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((40 + 3 * seed, 50 - seed), Image.Resampling.BILINEAR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two parts with the classes cat and dog; 3 and 4 images for training, 2 and 1 for testing."""
    root: Path = tmp_path_factory.mktemp("imagenet")
    seed = 0
    for part, counts in (("train", {"cat": 3, "dog": 4}), ("val", {"cat": 2, "dog": 1})):
        for name, count in counts.items():
            (root / part / name).mkdir(parents=True)
            for number in range(count):
                picture(seed).save(root / part / name / f"{number}.{'png' if seed % 2 else 'JPEG'}")
                seed += 1
    (root / "train" / "cat" / "notes.txt").write_text("not an image")
    (root / "train" / "README").write_text("not a class")
    return root


@pytest.fixture(scope="module")
def data(folder: Path) -> ImageFolders:
    found = load("imagenet", folder, size=16, resize=20)
    assert isinstance(found, ImageFolders)
    return found


def epoch(data: ImageFolders, number: int = 0, start: int = 0, **options: Any) -> list[tuple[Tensor, Tensor]]:
    resolved: dict[str, Any] = {"batch_size": 3, "seed": 5, "augment": PAPER} | options
    return list(data.train_batches(**resolved).epoch(number, start))


def same(ours: list[tuple[Tensor, Tensor]], theirs: list[tuple[Tensor, Tensor]]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(ours, theirs, strict=True)
    )


def test_classes_are_the_folders_and_images_the_files_in_them(data: ImageFolders) -> None:
    assert data.classes == ("cat", "dog")
    assert (data.train_size, data.test_size, data.image_shape) == (7, 3, (3, 16, 16))
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert [data.test.path(index).name for index in range(3)] == ["0.png", "1.JPEG", "0.png"]
    assert load("imagenet", data.train.folder.parent).image_shape == (3, 224, 224)


def test_a_test_image_is_resized_cropped_and_normalised_by_torchvision(data: ImageFolders) -> None:
    images = torch.cat([batch for batch, _labels in data.test_batches(2).epoch(0)])
    assert images.shape == (3, 3, 16, 16)
    for index in range(3):
        opened = Image.open(data.test.path(index)).convert("RGB")
        cut = functional.center_crop(functional.resize(opened, 20), 16)
        assert torch.equal(
            images[index], functional.normalize(functional.to_tensor(cut), data.mean, data.std)
        )


def test_a_training_image_is_a_random_part_that_may_be_mirrored(data: ImageFolders) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    from understudy.data.sampler import SAMPLE, generator

    (images, _labels), order = epoch(data)[0], data.train_batches(3, seed=5).sampler.order(0)
    theirs = transforms.Compose([transforms.RandomResizedCrop(16), transforms.RandomHorizontalFlip()])
    for image, index in zip(images, order.tolist(), strict=False):
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(generator(5, SAMPLE, 0, index).get_state())
            part = theirs(Image.open(data.train.path(index)).convert("RGB"))
        assert torch.equal(image, functional.normalize(functional.to_tensor(part), data.mean, data.std))


def test_an_epoch_meets_every_image_once_and_the_next_one_differs(data: ImageFolders) -> None:
    batches = [epoch(data, number) for number in range(2)]
    assert [len(labels) for _images, labels in batches[0]] == [3, 3, 1]
    assert sorted(torch.cat([labels for _images, labels in batches[0]]).tolist()) == [0, 0, 0, 1, 1, 1, 1]
    assert not same(*batches)
    assert not same(batches[0], epoch(data, seed=6))


def test_starting_at_a_step_continues_the_epoch_bit_for_bit(data: ImageFolders) -> None:
    whole = epoch(data, 4)
    for start in range(4):
        assert same(epoch(data, 4, start), whole[start:])


def test_the_ranks_joined_are_the_batches_of_one_process(data: ImageFolders) -> None:
    alone = epoch(data, batch_size=4)
    shares = zip(*(epoch(data, batch_size=4, rank=rank, world_size=2) for rank in range(2)), strict=True)
    assert same([tuple(torch.cat(parts) for parts in zip(*share, strict=True)) for share in shares], alone)  # type: ignore[misc]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_worker_processes_change_nothing(data: ImageFolders) -> None:
    assert same(epoch(data, workers=2), epoch(data))


def test_what_workers_are_given_can_be_pickled(data: ImageFolders) -> None:
    again = pickle.loads(pickle.dumps(data.train_batches(3, seed=5, augment=PAPER)))
    assert same(list(again.epoch(0)), epoch(data))


def test_the_global_random_state_is_untouched(data: ImageFolders) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        before = torch.get_rng_state()
        epoch(data)
        assert torch.equal(torch.get_rng_state(), before)


def test_more_processes_than_test_images_leave_some_without(data: ImageFolders) -> None:
    shares = [list(data.test_batches(500, rank=rank, world_size=5).epoch(0)) for rank in range(5)]
    assert sorted(len(labels) for ((_images, labels),) in shares) == [0, 0, 1, 1, 1]
    assert {images.shape[1:] for ((images, _labels),) in shares} == {(3, 16, 16)}
    joined = torch.cat([images for ((images, _labels),) in shares])
    assert torch.equal(joined, next(iter(data.test_batches(3).epoch(0)))[0])


def test_taking_some_images_takes_them_from_all_classes(data: ImageFolders) -> None:
    few = data.take(train=2, test=2)
    assert (few.train.labels.tolist(), few.test.labels.tolist()) == ([0, 1], [0, 0])
    assert data.take().train_size == 7
    with pytest.raises(ValueError, match=r"8 training images is not in 1\.\.7"):
        data.take(train=8)


def test_other_augmentation_than_its_own_is_refused(data: ImageFolders) -> None:
    with pytest.raises(ValueError, match="imagenet takes resized_crop and flip, not padding 4 or cutout 16"):
        data.train_batches(3, seed=0, augment=Augment(padding=4, cutout=16))


def test_a_broken_image_is_named(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "broken"
    shutil.copytree(folder, root)
    broken = root / "val" / "dog" / "0.png"
    for content in (b"", b"not an image", broken.read_bytes()[:-400]):
        broken.write_bytes(content)
        batches = load("imagenet", root, size=16, resize=20).test_batches(3)
        with pytest.raises(DataError, match=r"dog/0\.png cannot be read as an image"):
            list(batches.epoch(0))


def test_folders_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "other"
    with pytest.raises(DataError, match=r"other/train is not a folder; expected a folder for each class"):
        load("imagenet", root)
    (root / "train").mkdir(parents=True)
    with pytest.raises(DataError, match=r"other/train is empty; expected a folder for each class"):
        load("imagenet", root)
    shutil.rmtree(root)
    shutil.copytree(folder, root)
    (root / "val" / "emu").mkdir()
    with pytest.raises(DataError, match="train has 2 class folders, val 3; only one of them has emu"):
        load("imagenet", root)
    (root / "train" / "emu").mkdir()
    with pytest.raises(DataError, match=r"train/emu holds no image; expected files of bmp, jpeg"):
        load("imagenet", root)


def test_without_torchvision_the_error_names_the_extra(
    data: ImageFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.transforms", None)
    with pytest.raises(ImportError, match=r"pip install 'understudy\[vision\]' brings it"):
        data.test_batches(2)
