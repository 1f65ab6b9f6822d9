"""A teacher answers once: what is kept is what was asked, whole, within its limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import understudy as us
from understudy.data import Augment, Batches
from understudy.train import Fitted, Job, Recipe, answers, fit
from understudy.train.answers import Answers, Keep

LIMIT = 10**9
SETTINGS = Recipe(
    epochs=2, batch_size=8, attention=10.0, taps=("stage1", "stage3"), distillation=0.5, learning_rate=0.01
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parts of two batches, so that an epoch of 20 images has two; one thread."""
    monkeypatch.setattr(answers, "_IMAGES", 16)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network(seed: int) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return us.create_model("wrn_10_1", classes=10)


def batches(**changes: Any) -> Batches:
    drawn = torch.Generator().manual_seed(0)
    images = torch.randint(256, (20, 3, 8, 8), generator=drawn, dtype=torch.uint8)
    given: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "augment": Augment(padding=1), "seed": 3}
    return Batches(images, torch.arange(20) % 10, 8, **{**given, **changes})


class Counting(torch.nn.Module):
    """A teacher that says how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network(1)
        self.stage1, self.stage3 = self.inner.stage1, self.inner.stage3
        self.asked = 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        output: Tensor = self.inner(x)
        return output


def trained(
    keep: Keep | None, settings: Recipe = SETTINGS, told: list[str] | None = None, **changes: Any
) -> tuple[Fitted, int]:
    teacher = Counting()
    job = Job(network(2), batches(**changes), teacher, settings=settings, keep=keep)
    return fit(job, report=(lambda _: None) if told is None else told.append), teacher.asked


def weights(model: torch.nn.Module) -> Tensor:
    return torch.cat([tensor.flatten().float() for tensor in model.state_dict().values()])


@pytest.mark.parametrize(
    "changes",
    [{}, {"distillation": 0.0}, {"attention": 0.0, "distance": "outputs", "learning_rate": 1e-5}],
)
def test_the_second_run_asks_nothing_and_both_end_as_one_that_keeps_nothing(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    settings = SETTINGS.replaced(changes)
    keep = Keep(tmp_path / "answers", LIMIT)
    alone, asked = trained(None, settings)
    first, first_asked = trained(keep, settings)
    second, second_asked = trained(keep, settings)
    assert (asked, first_asked, second_asked) == (6, 6, 0)
    assert torch.equal(
        weights(first.network), weights(second.network)
    )  # whoever asks first, the numbers are the same
    moved = weights(alone.network) - weights(network(2))
    assert 0 < (weights(first.network) - weights(alone.network)).norm() < 0.01 * moved.norm()
    names = sorted(path.name for path in keep.folder.glob("*/*"))
    assert names == [f"epoch-{epoch}-part-{part}.safetensors" for epoch in (0, 1) for part in (0, 1)]


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({}, {"seed": 4}),
        ({}, {"augment": Augment(padding=2)}),
        ({}, {"mean": (0.4,) * 3}),
        ({}, {"drop_last": True}),
        ({"taps": ("stage1",)}, {}),
        ({"distillation": 0.0}, {}),
        ({"channels_last": False}, {}),
    ],
)
def test_another_question_has_answers_of_its_own(
    tmp_path: Path, settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    short = dataclasses.replace(SETTINGS, epochs=1)
    keep = Keep(tmp_path, LIMIT)
    trained(keep, short)
    _, asked = trained(keep, short.replaced(settings), **changes)
    assert asked == (2 if "drop_last" in changes else 3)
    assert len(list(tmp_path.iterdir())) == 2


def test_other_weights_and_other_images_are_another_question(tmp_path: Path) -> None:
    def asked(teacher: torch.nn.Module, data: Batches) -> int:
        fit(Job(network(2), data, teacher, settings=short, keep=Keep(tmp_path, LIMIT)))
        return len(list(tmp_path.iterdir()))

    short = dataclasses.replace(SETTINGS, epochs=1)
    brighter = batches()
    brighter.images = brighter.images.clone()
    brighter.images[0, 0, 0, 0] ^= 1
    cases = (network(1), batches()), (network(2), batches()), (network(1), brighter)
    assert [asked(*case) for case in cases] == [1, 2, 3]


def test_a_damaged_part_is_told_asked_again_and_replaced(tmp_path: Path) -> None:
    keep, told = Keep(tmp_path, LIMIT), list[str]()
    first, _ = trained(keep)
    [path] = tmp_path.glob("*/epoch-0-part-1.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    second, asked = trained(keep, told=told)
    assert asked == 1
    assert [line for line in told if line.startswith("the teacher's answers: epoch-0-part-1.safetensors is")]
    assert torch.equal(weights(first.network), weights(second.network))
    assert path.read_bytes() == whole


def test_a_part_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    keep = Keep(tmp_path, LIMIT)
    trained(keep)
    [folder] = tmp_path.iterdir()
    (folder / "epoch-1-part-0.safetensors").replace(folder / "epoch-0-part-0.safetensors")
    assert trained(keep)[1] == 4  # of both parts


def kept(folder: Path, limit: int = LIMIT) -> Answers:
    return Answers(Keep(folder, limit), "question", batches().sampler, 1)


def say(value: float, rows: int = 8) -> Any:
    return lambda: (torch.full((rows, 4), value),)


def no_one() -> Any:
    raise AssertionError("it was asked again")


def test_one_writes_a_part_and_another_meanwhile_asks(tmp_path: Path) -> None:
    one, other = kept(tmp_path), kept(tmp_path)
    for step in (0, 1):
        one.at(0, step, say(step))
        other.at(0, step, say(step))
        assert len(list(tmp_path.glob("*/*.safetensors"))) == step
    assert other.at(0, 2, say(2, 4))[0].shape == (4, 4)
    third = kept(tmp_path)
    assert third.at(0, 1, no_one)[0].eq(1).all()  # in the midst of a part
    other.close()
    assert not list(tmp_path.glob("*/*.lock"))


def test_a_run_that_goes_on_in_the_midst_of_a_part_does_not_write_it(tmp_path: Path) -> None:
    late = kept(tmp_path)
    late.at(0, 1, say(1))
    late.at(0, 2, say(2, 4))
    assert [path.name for path in tmp_path.glob("*/*.safetensors")] == ["epoch-0-part-1.safetensors"]


@pytest.mark.parametrize(("limit", "parts"), [(0, 0), (200, 1), (10**6, 2)])
def test_no_more_is_kept_than_the_limit_allows(tmp_path: Path, limit: int, parts: int) -> None:
    some = kept(tmp_path, limit)
    for step, rows in enumerate((8, 8, 4)):
        some.at(0, step, say(0.1, rows))
    assert len(list(tmp_path.glob("*/*.safetensors"))) == parts


def test_a_full_disk_is_told_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    some = kept(tmp_path)
    monkeypatch.setattr(answers, "write_tensors", full)
    for step in (0, 1):
        assert some.at(0, step, say(1.0))[0].eq(1).all()
    assert some.told() == ["128 B cannot be kept (no space left)"]
    assert some.told() == []


def test_numbers_beyond_float16_are_used_as_they_are_and_not_kept(tmp_path: Path) -> None:
    for _ in range(2):
        some = kept(tmp_path)
        assert some.at(0, 0, say(1e6))[0].eq(1e6).all()
        assert float(some.at(0, 1, say(0.1))[0][0, 0]) == float(torch.tensor(0.1).half())
        assert not list(tmp_path.glob("*/*"))


def test_batches_of_others_are_asked_about_every_time(tmp_path: Path) -> None:
    pairs = [(torch.zeros(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64))]
    fit(Job(network(2), pairs, network(1), settings=SETTINGS, keep=Keep(tmp_path, LIMIT)))
    assert not list(tmp_path.iterdir())
