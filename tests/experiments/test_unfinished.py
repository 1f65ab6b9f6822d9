"""The folder of a compression while it is made: how it takes its place, and what is left if it cannot."""

from __future__ import annotations

import dataclasses
import errno
import os
from pathlib import Path

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


def filled(place: Unfinished, *names: str) -> Unfinished:
    """The place with students and their numbers, ready to be published."""
    for name in names or ("low_rank-50",):
        place.keep(made(name))
    (place.folder / FILE).write_text("{}")
    return place


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
    filled(Unfinished(link, ASKED)).publish()
    assert link.is_symlink()
    assert names(link) == WHOLE
    assert names(tmp_path) == {"link", "real"}


def test_a_folder_that_cannot_be_removed_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "disk"
    out.mkdir()
    no_room(out, monkeypatch)
    filled(Unfinished(out, CURVE), "low_rank-50", "low_rank-33").publish()
    assert names(out) == {FILE, "low_rank-50", "low_rank-33"}
    assert names(out / "low_rank-33") == WHOLE - {FILE}
    assert names(tmp_path) == {"disk"}


def test_the_current_folder_is_filled_and_stays_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    filled(Unfinished(Path(), ASKED)).publish()
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
        place = filled(Unfinished(out, ASKED))
        with pytest.raises(KeyboardInterrupt):
            place.publish()
    again = Unfinished(out, ASKED, force=moment == "before it is cleared")
    assert again.is_resumed
    assert again.kept("low_rank-50") == made().record
    filled(again).publish()
    assert names(out) == WHOLE
    assert names(tmp_path) == {"small"}


def test_what_cannot_take_its_place_keeps_its_students(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = filled(Unfinished(tmp_path / "small", ASKED))

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refused)
        with pytest.raises(PermissionError):
            place.publish()
    place.drop_if_empty()
    assert Unfinished(tmp_path / "small", ASKED).kept("low_rank-50") is not None


def test_what_came_to_be_there_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "small"
    place = filled(Unfinished(out, ASKED))
    out.mkdir()
    (out / FILE).write_text("of another")
    with pytest.raises(ValueError, match="is not empty"):
        place.publish()
    place.close()
    assert (out / FILE).read_text() == "of another"
    filled(Unfinished(out, ASKED, force=True)).publish()
    assert names(out) == WHOLE
