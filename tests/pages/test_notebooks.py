"""The notebooks of examples/ run from the first cell to the last, on small stand-ins, and hold no output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from page_blocks import ROOT

import understudy as us
import understudy.data
from understudy.data import Images
from understudy.transforms import registry

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.ipynb"))}


def cells(name: str) -> list[dict[str, Any]]:
    found = json.loads(NOTEBOOKS[name].read_text(encoding="utf-8"))["cells"]
    assert isinstance(found, list)
    return found


def run(name: str, **settings: object) -> dict[str, Any]:
    """Run the code of a notebook in one namespace; `settings` replace what a cell of parameters sets."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(name)):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{NOTEBOOKS[name].name}, cell {number}", "exec"), names)
            if "parameters" in cell["metadata"].get("tags", ()):
                names |= {key: value for key, value in settings.items() if key in names}
    return names


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs(name: str) -> None:
    for cell in cells(name):
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and a list of transforms that is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry.known_transforms()))
    return tmp_path


def test_the_notebook_that_compresses_runs_with_any_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = str(Path(__file__).with_name("small_network.py")) + ":make"
    torch.save(us.create_model(network).state_dict(), folder / "weights.pt")

    def images(name: str, place: str, **statistics: Any) -> Images:
        assert (name, place) == ("cifar10", "here")
        drawn = torch.randint(256, (24, 3, 16, 16), generator=torch.Generator().manual_seed(0)).byte()
        labels = torch.arange(24) % 10
        classes = tuple("0123456789")
        parts: dict[str, Any] = {
            "train_images": drawn,
            "train_labels": labels,
            "test_images": drawn,
            "test_labels": labels,
        }
        return Images(name=name, classes=classes, **statistics, **parts)

    monkeypatch.setattr(understudy.data, "load", images)
    sizes = {"SAMPLES": 24, "TEST_SAMPLES": 24, "BATCH": 8, "EPOCHS": 1}
    names = run("compress_resnet56", NETWORK=network, WEIGHTS="weights.pt", DATA="here", **sizes)
    assert us.cost(names["again"], names["images"].example).params <= 0.5 * names["done"].plan.dense_params


def test_the_notebook_that_trains_gives_students_of_a_fifth(folder: Path) -> None:
    names = run("train_a_student", EPOCHS=1, IMAGES=64)
    assert (folder / "runs" / "student" / "result.json").is_file()
    assert names["outcome"].params <= 0.2 * 77_850
    assert names["plan"].params <= 0.2 * 77_850


@pytest.mark.usefixtures("folder")
def test_the_notebook_that_writes_one_counts_what_it_claims(capsys: pytest.CaptureFixture[str]) -> None:
    run("write_a_transform")
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == ["True", "True", "24 24"]
    assert printed[4] == "True True"


def test_every_notebook_is_run_here() -> None:
    assert sorted(NOTEBOOKS) == ["compress_resnet56", "train_a_student", "write_a_transform"]
