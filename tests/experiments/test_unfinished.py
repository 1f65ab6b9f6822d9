"""The folder of a compression while it is made: how it takes its place, and what is left if it cannot."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from pathlib import Path
from typing import TextIO

import pytest
from torch import nn

import understudy as us
from understudy.compressions import FILE, Footprint, Latency, Quality, Student
from understudy.experiments.tradeoff import Made
from understudy.experiments.unfinished import Asked, Unfinished

ASKED = Asked("network", "", "data", ("low_rank",), ("half",), 0, {})
CURVE = dataclasses.replace(ASKED, budgets=("half", "third"))
WHOLE = {FILE, "plan.json", "student.safetensors"}


def made(name: str = "low_rank-50") -> Made:
    """A student of a network so small that making it is nothing."""
    network = nn.Sequential(nn.Linear(16, 16))
    plan = us.plan(network, "low_rank", ratio=0.6)
    record = Student(
        name=name,
        folder="",
        transform="low_rank",
        budget="half",
        costs=Footprint(1, 1, 1, 1),
        quality=Quality(1, None, None, None, 1.0),
        latency=Latency(1.0, 1.0, 1),
        steps=(),
        layers=(),
        remarks=(),
        seconds=1.0,
    )
    return Made(us.substitute(network, plan), plan, record)


def publish(place: Unfinished, *names: str) -> None:
    """Make students and their numbers, and put them in their place."""
    with place:
        for name in names or ("low_rank-50",):
            place.keep(made(name))
        (place.folder / FILE).write_text("{}")
        place.publish()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def no_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a folder be as one that a disk is mounted at: nobody can remove it."""
    rmdir = Path.rmdir

    def refuse(self: Path) -> None:
        if self == path:
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        rmdir(self)

    monkeypatch.setattr(Path, "rmdir", refuse)


def test_a_link_is_followed_and_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    publish(Unfinished(link, ASKED))
    assert link.is_symlink()
    assert names(link) == WHOLE
    assert names(tmp_path) == {"link", "real"}


def test_a_folder_that_cannot_be_removed_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "disk"
    out.mkdir()
    no_room(out, monkeypatch)
    publish(Unfinished(out, CURVE), "low_rank-50", "low_rank-33")
    assert names(out) == {FILE, "low_rank-50", "low_rank-33"}
    assert names(out / "low_rank-33") == WHOLE - {FILE}
    assert names(tmp_path) == {"disk"}


def test_the_current_folder_is_filled_and_stays_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    publish(Unfinished(Path(), ASKED))
    assert {path.name for path in Path().iterdir()} == WHOLE


@pytest.mark.parametrize("moment", ["before it is moved", "half copied", "before it is cleared"])
def test_killed_while_it_takes_its_place_it_goes_on_with_all_its_students(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "small"
    out.mkdir()
    name = {"before it is moved": "Path.rename", "half copied": "shutil.copytree"}.get(
        moment, "shutil.rmtree"
    )
    with monkeypatch.context() as patch:
        if name != "Path.rename":
            no_room(out, patch)

        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(f"understudy.experiments.unfinished.{name}", killed)
        with pytest.raises(KeyboardInterrupt):
            publish(Unfinished(out, ASKED))
    with Unfinished(out, ASKED, force=moment == "before it is cleared") as again:
        assert again.is_resumed
        assert again.kept("low_rank-50") == made().record
        publish(again)
    assert names(out) == WHOLE
    assert names(tmp_path) == {"small"}


def test_what_cannot_take_its_place_keeps_its_students(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refused)
        with pytest.raises(PermissionError):
            publish(Unfinished(tmp_path / "small", ASKED))
    with Unfinished(tmp_path / "small", ASKED) as again:
        assert again.kept("low_rank-50") is not None


def test_what_came_to_be_there_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "small"
    with Unfinished(out, ASKED) as place:
        out.mkdir()
        (out / FILE).write_text("of another")
        with pytest.raises(ValueError, match="is not empty"):
            publish(place)
    assert (out / FILE).read_text() == "of another"
    publish(Unfinished(out, ASKED, force=True))
    assert names(out) == WHOLE
    assert names(tmp_path) == {"small"}


@pytest.mark.parametrize("force", [False, True])
def test_while_one_is_at_work_no_other_is_nor_takes_anything_away(force: bool, tmp_path: Path) -> None:
    with Unfinished(tmp_path / "small", ASKED) as first:
        for asked in (ASKED, CURVE):
            with pytest.raises(ValueError, match="in use by another process"):
                publish(Unfinished(tmp_path / "small", asked, force=force))
        publish(first)
    assert names(tmp_path / "small") == WHOLE


def test_who_began_before_another_finished_replaces_nothing(tmp_path: Path) -> None:
    second = Unfinished(tmp_path / "small", ASKED)
    publish(Unfinished(tmp_path / "small", ASKED))
    with pytest.raises(ValueError, match="is not empty"):
        publish(second)
    assert names(tmp_path) == {"small"}


def test_a_lock_that_was_moved_away_with_its_folder_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Unfinished(tmp_path / "small", ASKED)

    def moved(_: TextIO) -> bool:
        place.folder.rename(place.out)
        return True

    monkeypatch.setattr("understudy.experiments.unfinished.lock", moved)
    with pytest.raises(ValueError, match="in use by another process"):
        publish(place)


def test_one_that_made_no_student_is_in_nobodys_way(tmp_path: Path) -> None:
    out = tmp_path / "small"
    with pytest.raises(OSError, match="no data"), Unfinished(out, ASKED):
        raise OSError("no data")
    assert not names(tmp_path)
    with Unfinished(out, ASKED) as killed:
        shutil.copytree(killed.folder, tmp_path / "other.part")
    publish(Unfinished(tmp_path / "other", CURVE))
    assert names(tmp_path) == {"other", "small.part"}


@pytest.mark.parametrize("force", [False, True])
def test_what_another_left_is_dropped_only_by_force(force: bool, tmp_path: Path) -> None:
    out = tmp_path / "small"
    with Unfinished(out, ASKED) as place:
        place.keep(made())
    if not force:
        with pytest.raises(ValueError, match="left of another compression with another budgets"):
            publish(Unfinished(out, CURVE))
        assert (place.folder / "student.safetensors").is_file()
    else:
        publish(Unfinished(out, CURVE, force=True))
        assert names(out) == {FILE, "low_rank-50"}


def test_a_folder_that_only_is_called_so_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "small.part").mkdir()
    (tmp_path / "small.part" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="left of another compression"):
        publish(Unfinished(tmp_path / "small", ASKED))
    assert (tmp_path / "small.part" / "mine.txt").is_file()
