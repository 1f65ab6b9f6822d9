"""Whole-batch augmentation against one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from understudy.data import Augment
from understudy.data.augment import crop, cutout, flip, normalise

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
PAPER = Augment(padding=4, flip=True, cutout=16)


def pixels(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def published_cutout(image: NDArray[np.float32], y: int, x: int, length: int) -> NDArray[np.float32]:
    """The square of DeVries and Taylor's `Cutout.__call__`, for one hole."""
    height, width = image.shape[1:]
    mask = np.ones((height, width), np.float32)
    y1, y2 = np.clip(y - length // 2, 0, height), np.clip(y + length // 2, 0, height)
    x1, x2 = np.clip(x - length // 2, 0, width), np.clip(x + length // 2, 0, width)
    mask[y1:y2, x1:x2] = 0.0
    return image * mask


def one_at_a_time(augment: Augment, images: Tensor, draws: Tensor) -> Tensor:
    done = []
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (MEAN, STD))
    for image, (top, left, mirrored, row, column) in zip(images.numpy(), draws.tolist(), strict=True):
        height, width = image.shape[1:]
        margin = (augment.padding, augment.padding)
        image = np.pad(image, ((0, 0), margin, margin))[:, top : top + height, left : left + width]
        if augment.flip and mirrored:
            image = image[:, :, ::-1]
        real = (image.astype(np.float32) / np.float32(255) - mean) / std
        done.append(published_cutout(real, row, column, augment.cutout))
    return torch.from_numpy(np.stack(done))


@settings(deadline=None)
@given(
    count=st.integers(1, 5),
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    padding=st.integers(0, 5),
    mirror=st.booleans(),
    half=st.integers(0, 7),
    seed=st.integers(0, 2**32),
)
def test_a_batch_is_bit_for_bit_what_one_image_at_a_time_gives(
    count: int, height: int, width: int, padding: int, mirror: bool, half: int, seed: int
) -> None:
    augment = Augment(padding=padding, flip=mirror, cutout=2 * half)
    images = pixels(count, 3, height, width, seed=seed)
    before = images.clone()
    draws = augment.draw(count, height, width, seeded(seed))
    augmented = augment.apply(images, draws, MEAN, STD)
    assert augmented.dtype == torch.float32
    # −0.0 of the reference's product is equal to the 0.0 that is written here
    assert torch.equal(augmented, one_at_a_time(augment, images, draws))
    assert torch.equal(images, before)


def test_crop_flip_and_normalisation_are_those_of_torchvision() -> None:
    functional = pytest.importorskip("torchvision.transforms.functional")
    images = pixels(16, 3, 32, 32)
    augment = Augment(padding=4, flip=True)
    draws = augment.draw(16, 32, 32, seeded(1))
    expected = []
    for image, (top, left, mirrored, _row, _column) in zip(images, draws.tolist(), strict=True):
        picture = functional.crop(functional.pad(functional.to_pil_image(image), 4), top, left, 32, 32)
        if mirrored:
            picture = functional.hflip(picture)
        expected.append(functional.normalize(functional.to_tensor(picture), MEAN, STD))
    assert torch.equal(augment.apply(images, draws, MEAN, STD), torch.stack(expected))


def test_a_crop_at_the_padding_changes_nothing_and_further_out_brings_in_zeros() -> None:
    images = pixels(2, 3, 6, 6) | 1  # no zero among the pixels
    middle, corner = torch.full((2,), 4), torch.zeros(2, dtype=torch.int64)
    assert torch.equal(crop(images, middle, middle, 4), images)
    shifted = crop(images, corner, corner, 4)
    assert torch.equal(shifted[:, :, 4:, 4:], images[:, :, :2, :2])
    assert int(shifted[:, :, :4].sum()) == int(shifted[:, :, :, :4].sum()) == 0


@settings(deadline=None)
@given(mirrored=st.lists(st.booleans(), min_size=1, max_size=6))
def test_flipping_twice_gives_the_image_back(mirrored: list[bool]) -> None:
    images = pixels(len(mirrored), 3, 5, 7)
    choice = torch.tensor(mirrored)
    once = flip(images, choice)
    assert torch.equal(flip(once, choice), images)
    assert torch.equal(once[choice], images[choice].flip(3))
    assert torch.equal(once[~choice], images[~choice])


def test_padding_is_black_before_normalisation_and_cutout_is_zero_after_it() -> None:
    images = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    black = normalise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8), MEAN, STD).flatten()
    draws = torch.tensor([[0, 4, 0, 31, 31]])  # four padded rows on top, the square at the lower right corner
    out = PAPER.apply(images, draws, MEAN, STD)
    assert torch.equal(out[0, :, 0, 0], black)
    assert torch.equal(out[0, :, -1, -1], torch.zeros(3))
    assert int((out[0, 0] == 0).sum()) == 9 * 9  # rows and columns 23..31 of 23..38


@settings(deadline=None)
@given(row=st.integers(0, 31), column=st.integers(0, 31), length=st.integers(1, 40))
def test_cutout_clears_a_square_clipped_at_the_border(row: int, column: int, length: int) -> None:
    cleared = cutout(torch.ones(1, 2, 32, 32), torch.tensor([row]), torch.tensor([column]), length) == 0
    rows, columns = (range(c - length // 2, c - length // 2 + length) for c in (row, column))
    expected = [[y in rows and x in columns for x in range(32)] for y in range(32)]
    assert torch.equal(cleared, torch.tensor(expected).expand(1, 2, 32, 32))


def test_every_choice_occurs_about_equally_often() -> None:
    draws = PAPER.draw(40_000, 32, 24, seeded(0))
    for column, bound in enumerate((9, 9, 2, 32, 24)):
        counts = torch.bincount(draws[:, column], minlength=bound)
        assert len(counts) == bound
        expected = 40_000 / bound
        assert float((counts - expected).abs().max()) < 5 * expected**0.5


def test_switching_a_part_off_leaves_the_other_choices_as_they_were() -> None:
    whole = PAPER.draw(50, 32, 32, seeded(3))
    without_crop = Augment(flip=True, cutout=16).draw(50, 32, 32, seeded(3))
    assert torch.equal(without_crop[:, 2:], whole[:, 2:])
    assert not without_crop[:, :2].any()
    assert torch.equal(Augment(padding=4).draw(50, 32, 32, seeded(3)), whole)


def test_the_default_only_normalises() -> None:
    images = pixels(4, 3, 8, 8)
    draws = Augment().draw(4, 8, 8, seeded(0))
    assert torch.equal(Augment().apply(images, draws, MEAN, STD), normalise(images, MEAN, STD))


def test_an_empty_slice_of_a_batch_stays_empty() -> None:
    draws = PAPER.draw(0, 32, 32, seeded(0))
    assert PAPER.apply(pixels(0, 3, 32, 32), draws, MEAN, STD).shape == (0, 3, 32, 32)


def test_the_global_random_state_is_untouched() -> None:
    before = torch.get_rng_state()
    PAPER.apply(pixels(4, 3, 32, 32), PAPER.draw(4, 32, 32, seeded(0)), MEAN, STD)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="padding -1 is not a whole number of pixels from 0 up"):
        Augment(padding=-1)
    with pytest.raises(ValueError, match="cutout -2 is not a whole number of pixels from 0 up"):
        Augment(cutout=-2)


def test_a_resized_crop_of_images_in_memory_is_refused() -> None:
    augment = Augment(resized_crop=True)
    with pytest.raises(ValueError, match="resized_crop is for images read from files"):
        augment.apply(pixels(1, 3, 8, 8), augment.draw(1, 8, 8, seeded(0)), MEAN, STD)
