"""Batches follow from (seed, epoch, step): any start, any number of processes, the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from understudy.data import Augment, Batches, Sampler

AUGMENT = Augment(padding=2, flip=True, cutout=4)


def made(count: int = 23, size: int = 6, **options: Any) -> Batches:
    """Each image has its own label, so that an order can be read off."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, 3, size, size), generator=generator, dtype=torch.uint8)
    defaults: dict[str, Any] = {"batch_size": 5, "augment": AUGMENT, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return Batches(images, torch.arange(count), **(defaults | options))


def same(ours: list[tuple[Tensor, Tensor]], theirs: list[tuple[Tensor, Tensor]]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.equal(a, b)
        for mine, other in zip(ours, theirs, strict=True)
        for a, b in zip(mine, other, strict=True)
    )


def labels(batches: Batches, epoch: int) -> list[int]:
    return torch.cat([chosen for _images, chosen in batches.epoch(epoch)]).tolist()


@settings(deadline=None)
@given(
    count=st.integers(1, 40), batch_size=st.integers(1, 40), epoch=st.integers(0, 9), seed=st.integers(0, 99)
)
def test_an_epoch_meets_every_image_once(count: int, batch_size: int, epoch: int, seed: int) -> None:
    assume(batch_size <= count)
    batches = made(count, batch_size=batch_size, seed=seed)
    assert sorted(labels(batches, epoch)) == list(range(count))
    assert len(list(batches.epoch(epoch))) == len(batches)


@settings(deadline=None)
@given(epoch=st.integers(0, 500), start=st.integers(0, 5), seed=st.integers(0, 2**70))
def test_starting_at_a_step_continues_the_epoch_bit_for_bit(epoch: int, start: int, seed: int) -> None:
    whole = list(made(seed=seed).epoch(epoch))
    assert same(list(made(seed=seed).epoch(epoch, start)), whole[start:])


@settings(deadline=None)
@given(
    count=st.integers(1, 30),
    batch_size=st.integers(1, 30),
    world_size=st.integers(1, 5),
    start=st.integers(0, 3),
    shuffle=st.booleans(),
)
def test_the_ranks_joined_are_the_batches_of_one_process(
    count: int, batch_size: int, world_size: int, start: int, shuffle: bool
) -> None:
    assume(batch_size <= count)
    options = {"batch_size": batch_size, "shuffle": shuffle}
    alone = made(count, **options)
    start = min(start, len(alone))
    if shuffle:
        assume(alone.size(len(alone) - 1) >= world_size)
    ranks = [made(count, **options, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert {len(rank) for rank in ranks} == {len(alone)}
    shares = zip(*(rank.epoch(3, start) for rank in ranks), strict=True)
    joined = [tuple(torch.cat(parts) for parts in zip(*share, strict=True)) for share in shares]
    assert same(joined, list(alone.epoch(3, start)))  # type: ignore[arg-type]
    for share in zip(*(rank.epoch(3) for rank in ranks), strict=True):
        sizes = [len(chosen) for _images, chosen in share]
        assert max(sizes) - min(sizes) <= 1


def test_a_run_of_one_process_can_be_continued_by_three() -> None:
    alone = list(made(24, batch_size=6).epoch(1))
    later = zip(
        *(made(24, batch_size=6, rank=rank, world_size=3).epoch(1, 2) for rank in range(3)), strict=True
    )
    continued = [tuple(torch.cat(parts) for parts in zip(*share, strict=True)) for share in later]
    assert same(alone[:2] + continued, alone)  # type: ignore[operator]


def test_epochs_and_seeds_differ_in_order_and_in_augmentation() -> None:
    orders = {tuple(labels(made(seed=seed), epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    one = made(1, batch_size=1)  # no order to choose: what differs is the augmentation
    assert len({tuple(next(one.epoch(epoch))[0].flatten().tolist()) for epoch in range(12)}) > 6


@pytest.mark.parametrize("batch_size", [64, 8, 1])
def test_every_image_of_an_epoch_is_augmented_in_its_own_way(batch_size: int) -> None:
    images = torch.arange(36, dtype=torch.uint8).reshape(1, 1, 6, 6).repeat(64, 3, 1, 1)
    batches = Batches(
        images,
        torch.zeros(64, dtype=torch.int64),
        batch_size,
        augment=AUGMENT,
        mean=(0.0,) * 3,
        std=(1.0,) * 3,
    )
    out = torch.cat([augmented for augmented, _labels in batches.epoch(0)])
    assert len({tuple(image.flatten().tolist()) for image in out}) > 48


def test_interleaved_epochs_do_not_disturb_each_other() -> None:
    batches = made()
    first, second = batches.epoch(0), batches.epoch(1)
    pairs = list(zip(first, second, strict=True))
    assert same([pair[0] for pair in pairs], list(made().epoch(0)))
    assert same([pair[1] for pair in pairs], list(made().epoch(1)))


def test_without_shuffling_the_images_come_in_order() -> None:
    batches = made(shuffle=False, augment=None)
    assert labels(batches, 0) == labels(batches, 7) == list(range(23))


def test_drop_last_leaves_out_the_short_batch() -> None:
    kept, dropped = made(), made(drop_last=True)
    assert (len(kept), len(dropped)) == (5, 4)
    assert [kept.size(step) for step in range(5)] == [5, 5, 5, 5, 3]
    assert same(list(dropped.epoch(0)), list(kept.epoch(0))[:4])


def test_the_global_random_state_is_untouched() -> None:
    before = torch.get_rng_state()
    list(made().epoch(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_are_made_on_the_device_asked_for() -> None:
    images, chosen = next(made(device="meta", augment=Augment()).epoch(0))
    assert images.device.type == chosen.device.type == "meta"
    assert images.shape == (5, 3, 6, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 24}, "batch size 24 is not in 1..23, the number of images"),
        ({"batch_size": 0}, "batch size 0 is not in 1..23"),
        ({"count": 0}, "the data set is empty: there are 0 images"),
        ({"classes": 10}, "label 22 is not in 0..9 for 10 classes"),
        ({"rank": 2, "world_size": 2}, "rank 2 is not in 0..1"),
        (
            {"world_size": 4},
            "has 3 images, too few for 4 processes; use another batch size than 5, or drop_last",
        ),
        ({"seed": -1}, "seed -1 is not a whole number from 0 up"),
        ({"mean": (0.5,)}, "3 channels, but 1 means and 3 deviations"),
        ({"augment": Augment(resized_crop=True)}, "resized_crop is for images read from files"),
    ],
)
def test_what_cannot_be_cut_into_batches_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_images_and_labels_of_another_kind_are_refused() -> None:
    images, chosen = torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([0, 1])
    wrong = [
        (images.float(), chosen, r"images are float32 of shape \(2, 3, 4, 4\); they must be uint8"),
        (images[0], chosen, "of 4 dimensions"),
        (images, chosen.int(), "labels are int32"),
        (images, chosen[:1], "2 images, but 1 labels"),
        (images, torch.tensor([0, -1]), "label -1 is not in 0 up"),
    ]
    for pixels, given_labels, message in wrong:
        with pytest.raises(ValueError, match=message):
            Batches(pixels, given_labels, 1, mean=(0.5,) * 3, std=(0.5,) * 3)


def test_a_step_or_epoch_that_is_not_there_is_refused_at_once() -> None:
    batches = made()
    with pytest.raises(ValueError, match=r"step 6 is not in 0\.\.5, the steps of an epoch"):
        batches.epoch(0, 6)
    with pytest.raises(ValueError, match="epoch -1"):
        batches.epoch(-1)
    assert list(batches.epoch(0, 5)) == []


def test_order_of_a_sampler_is_a_function_of_seed_and_epoch() -> None:
    assert torch.equal(Sampler(100, 10, seed=4).order(2), Sampler(100, 50, seed=4, world_size=2).order(2))
