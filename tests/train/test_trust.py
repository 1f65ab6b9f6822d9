"""What a folder of others may do: no function that it names is called, no path that it names is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import understudy as us
from command import Run as Command
from understudy._util.factories import TrustError, check_trust
from understudy.experiments.folder import IndexEntry
from understudy.train import Recipe, Run, evaluate_trained
from understudy.train.figures import Epoch, Outcome
from understudy.train.teacher import load_teacher

MODULE = """
from pathlib import Path
import understudy as us

def make(**options):
    Path(__file__).with_name("called").touch()
    return us.create_model("wrn_10_1", classes=10)
"""


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MODULE)
    return f"{tmp_path / 'mine.py'}:make"


def finished(folder: Path, recipe: Recipe) -> Path:
    """A run that ended long ago, elsewhere."""
    run = Run.open(folder, recipe)
    us.save(us.create_model("wrn_10_1"), run.model_file)
    run.set_outcome(Outcome(Epoch(0, 1, 0.1, 0.5)))
    run.set_status("finished")
    run.close()
    return folder


def test_a_network_that_a_run_names_is_made_only_where_it_is_trusted(
    tmp_path: Path, place: str, run: Command
) -> None:
    folder = finished(tmp_path / "copied", Recipe(network=place))
    for arguments in (("evaluate", folder), ("export", folder, "--out", tmp_path / "student.onnx")):
        refused = run(*arguments)
        assert refused.code == 2
        assert refused.err.count("\n") == 1
        for words in ("copied names", "mine.py:make", "would be called", "--trust"):
            assert words in refused.err
    taught = Recipe(network="wrn_10_1", teacher=str(folder))
    with pytest.raises(TrustError, match=r"copied names .* as its network, which would be called"):
        load_teacher(taught, 10)
    assert not (tmp_path / "called").exists()
    load_teacher(Recipe(network=place, teacher=str(folder)), 10)  # who asks names it as well
    assert (tmp_path / "called").exists()
    (tmp_path / "called").unlink()
    load_teacher(taught, 10, trust=True)
    assert (tmp_path / "called").exists()


def test_data_that_a_run_names_are_made_only_where_they_are_trusted(tmp_path: Path, place: str) -> None:
    folder = finished(tmp_path / "copied", Recipe(network="wrn_10_1", data=place))
    with pytest.raises(TrustError, match="as its data"):
        evaluate_trained(folder)
    assert not (tmp_path / "called").exists()
    with pytest.raises(ValueError, match=r"not an understudy\.data.DataSet"):
        evaluate_trained(folder, trust=True)
    assert (tmp_path / "called").exists()


@pytest.mark.parametrize(
    "name", ["wrn_10_1", "timm:resnet18", "torchvision:vit_b_16", "transformers:a/b-c.1"]
)
def test_names_of_known_libraries_call_nothing_else(name: str) -> None:
    check_trust("run", {"network": name}, trust=False)


@pytest.mark.parametrize("name", ["os:abort", "timm:", "timm:a:b", "timm:x;y", "mine.py:make", ":"])
def test_other_places_are_not_trusted(name: str) -> None:
    with pytest.raises(TrustError, match="would be called"):
        check_trust("run", {"network": name}, trust=False)


ODD_NAMES = [
    "../../../evil",
    "",
    ".",
    "..",
    ".hidden",
    "a/b",
    "a\\b",
    "a" * 221,
    "a\n",
    "a.",
    "\ud800",
    "nul\0",
    "é",
]


@pytest.mark.parametrize("name", ODD_NAMES)
@pytest.mark.parametrize("make", [lambda name: Recipe(name=name), lambda name: IndexEntry(name, "id")])
def test_a_name_that_becomes_a_folder_is_of_a_checked_alphabet(make: Any, name: str) -> None:
    with pytest.raises(ValueError, match="is not a name of at most 220 letters") as told:
        make(name)
    assert len(str(told.value)) < 250


def test_a_recipe_makes_no_folder_outside_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Command
) -> None:
    home = tmp_path / "a" / "b" / "c"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    (home / "evil.toml").write_text('name = "../../../evil"\n')
    refused = run("train", "evil.toml")
    assert refused.code == 2
    assert "name '../../../evil' is not a name" in refused.err
    assert [path.name for path in home.iterdir()] == ["evil.toml"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("network", ["a" * 10_000, "wrn\n_10_1"])
def test_a_network_has_a_name_that_a_table_can_show(network: str) -> None:
    with pytest.raises(ValueError, match="is not one line of at most 500 characters"):
        Recipe(network=network)
