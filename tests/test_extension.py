"""A transform that lives in another package goes everywhere by its name, and through the whole contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GRID = """
recipe = "demo"
[settings]
epochs = 1
train_images = 128
[teacher]
epochs = 1
[[students]]
transforms = ["shared_rows", { "*.conv1" = "shared_rows", "*.conv2" = "low_rank" }]
ratio = 0.4
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an installed package whose entry point is the transform of the example."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "shared_rows.py").write_text((ROOT / "examples" / "shared_rows.py").read_text(encoding="utf-8"))
    info = folder / "shared_rows-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shared-rows\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[understudy.transforms]\nshared_rows = shared_rows:SharedRows\n")
    return folder


def run(outside: Path, *command: str) -> str:
    """What a command prints where the package is installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(outside), *sys.path]), "COLUMNS": "200"}
    ran = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=outside,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_commands_know_a_transform_of_another_package(outside: Path) -> None:
    assert "k distinct rows." in run(outside, "understudy", "transforms")
    (outside / "grid.toml").write_text(GRID, encoding="utf-8")
    run(outside, "understudy", "sweep", "grid.toml", "--out", "sweep")
    results = [
        json.loads(path.read_text()) for path in sorted((outside / "sweep" / "results").glob("*.json"))
    ]
    assert [result["status"]["state"] for result in results] == ["finished"] * 3
    assert {tuple(result["transforms"]) for result in results} == {
        (), ("shared_rows",), ("shared_rows", "low_rank")
    }  # fmt: skip
    run(outside, "understudy", "report", "sweep")
    assert "shared_rows" in (outside / "sweep" / "report" / "index.html").read_text(encoding="utf-8")


def test_the_contract_takes_a_transform_of_another_package(outside: Path) -> None:
    contract = ROOT / "tests" / "transforms" / "test_contract.py"
    pick = ("-q", "-p", "no:cacheprovider", "--no-cov", "-k", "shared_rows")
    assert " passed" in run(outside, "pytest", str(contract), *pick)


def test_the_example_runs_as_it_stands(outside: Path) -> None:
    assert "parameters, 30.0 % of 691,674" in run(outside, "shared_rows")
