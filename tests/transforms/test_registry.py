"""The registry: transforms from outside, by a call and by an entry point; a broken one breaks no other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contract
import pytest
import torch
from test_contract import OF_A_KNOB, OF_A_SHAPE
from torch import nn

import understudy as us
from understudy.transforms import registry
from understudy.transforms.low_rank import LowRank


@pytest.fixture(autouse=True)
def registry_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(registry, "_REGISTERED", dict(us_registered()))
    monkeypatch.setattr(registry, "_BROKEN", {})


def us_registered() -> dict[str, type[us.Transform]]:
    return registry.known_transforms()


class Bottleneck(LowRank):
    """W = U V, under another name."""

    name = "bottleneck"


def test_a_registered_transform_is_known_by_name_and_by_class() -> None:
    assert us.register_transform(Bottleneck) is Bottleneck  # a decorator gives the class back
    assert us.register_transform(Bottleneck) is Bottleneck  # twice is fine
    assert us.list_transforms()[-1] == "bottleneck"
    assert us.get_transform("bottleneck") is us.get_transform(Bottleneck) is Bottleneck


def test_a_registered_transform_goes_through_plan_substitute_and_file(tmp_path: Path) -> None:
    us.register_transform(Bottleneck)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    student = us.substitute(model, us.plan(model, "bottleneck", knob=2))
    us.save(student, tmp_path / "student")
    loaded = us.load(tmp_path / "student", model)
    assert [type(layer.transform) for _, layer in us.stand_ins(loaded)] == [Bottleneck, Bottleneck]
    assert torch.equal(loaded(torch.ones(1, 8)), student(torch.ones(1, 8)))


def test_a_registered_transform_is_taken_up_by_the_contract() -> None:
    us.register_transform(Bottleneck)
    cases = [case for case in contract.cases() if case.transform is Bottleneck]
    assert {case.shape for case in cases} == {*contract.SHAPES}
    for check in (*OF_A_KNOB, *OF_A_SHAPE):
        check(next(case for case in cases if case.shape == contract.PRIME))


def of(name: Any, knob_name: Any = "rank") -> type[us.Transform]:
    return type("Outside", (LowRank,), {"name": name, "knob_name": knob_name})


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (lambda: nn.Linear, TypeError, "is not a subclass of understudy.Transform"),
        (lambda: LowRank(4, 4, 1), TypeError, "is not a subclass of understudy.Transform"),
        (
            lambda: of("low_rank"),
            ValueError,
            r"taken by understudy\.transforms\.low_rank\.LowRank",
        ),
        (lambda: of("Low Rank"), ValueError, "name of Outside is 'Low Rank', not a name of lower-case"),
        (lambda: of(None), ValueError, "name of Outside is None"),
        (lambda: of("outside", ""), ValueError, "knob_name of Outside is ''"),
        (
            lambda: type("Half", (us.Transform,), {"name": "half", "knob_name": "k"}),
            TypeError,
            "Half lacks .*knobs",
        ),
    ],
)
def test_what_cannot_be_registered_is_refused(
    made: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        us.register_transform(made())


def test_a_class_that_is_not_registered_is_refused_with_the_way_to_do_so() -> None:
    with pytest.raises(ValueError, match=r"Bottleneck is not registered: register_transform\(Bottleneck\)"):
        us.get_transform(Bottleneck)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no transform 'low-rank' among .*\(did you mean 'low_rank'"):
        us.get_transform("low-rank")


# ---- entry points ----------------------------------------------------------------------------------------


def install(folder: Path, points: dict[str, str], source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that offers transforms, as an installer leaves it."""
    (folder / "outside_maps.py").write_text(source)
    about = folder / "outside_maps-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-maps\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[understudy.transforms]", *lines]) + "\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "outside_maps", raising=False)
    monkeypatch.setattr(registry, "_LOADED", [])


OUTSIDE = """
from understudy import Transform
from understudy.transforms.low_rank import LowRank

class Outside(LowRank):
    name = "outside"

class Misnamed(LowRank):
    name = "misnamed"

not_a_class = 3
"""


def test_an_installed_package_offers_its_transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, {"outside": "outside_maps:Outside"}, OUTSIDE, monkeypatch)
    assert us.list_transforms()[-1] == "outside"
    assert us.get_transform("outside").__module__ == "outside_maps"
    assert not registry._BROKEN


def test_the_entry_points_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, {"outside": "outside_maps:Outside"}, OUTSIDE, monkeypatch)
    us.list_transforms()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("looked again"))
    assert "outside" in us.list_transforms()


@pytest.mark.parametrize(
    ("point", "value", "reason"),
    [
        ("gone", "outside_maps:Gone", "AttributeError: .*Gone"),
        ("absent", "no_such_module:Map", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("number", "outside_maps:not_a_class", "TypeError: 3 is not a subclass of understudy.Transform"),
        ("other", "outside_maps:Misnamed", "ValueError: the class is named 'misnamed'"),
    ],
)
def test_a_broken_entry_point_is_named_with_its_package_when_it_is_asked_for(
    point: str, value: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, {point: value, "outside": "outside_maps:Outside"}, OUTSIDE, monkeypatch)
    assert {"low_rank", "outside"} <= {*us.list_transforms()}
    assert point not in us.list_transforms()
    assert [*registry._BROKEN] == [point]
    with pytest.raises(ValueError, match=f"the transform {point!r} of the package outside-maps .*: {reason}"):
        us.get_transform(point)
    with pytest.raises(ValueError, match=f"no transform 'nothing' .*; {point!r} of the package outside-maps"):
        us.get_transform("nothing")
