"""A transform that lives in another package goes everywhere by its name, and through the whole contract."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = """
import json, sys
from pathlib import Path
import understudy as us
from understudy.experiments import make_grid, sweep
from understudy.report import write_report

assert "shared_rows" in us.list_transforms()
import shared_rows  # after it was found by its entry point
shared_rows.main()
model = us.create_model("wrn_10_1")
assert "shared_rows" in us.compare(model, ratio=0.3).plans
grid = make_grid("outside", {
    "recipe": "demo",
    "networks": "wrn_10_1",
    "settings": {"epochs": 1, "train_images": 128},
    "teacher": {"epochs": 1},
    "students": [{
        "transforms": ["shared_rows", {"*.conv1": "shared_rows", "*.conv2": "low_rank"}],
        "ratio": 0.4,
    }],
})
results = sweep(grid, Path("sweep"))
write_report(results, Path("report"), title="outside")
print(json.dumps([[result.status.state, *result.transforms] for result in results]))
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(outside), *sys.path])}
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=outside,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_transform_of_another_package_is_planned_trained_swept_and_reported(outside: Path) -> None:
    *shown, states = run(outside, "-c", SCRIPT).splitlines()
    assert "parameters, 30.0 % of 691,674" in shown[0]  # the example, as it stands
    assert json.loads(states) == [
        ["finished"], ["finished", "shared_rows"], ["finished", "shared_rows", "low_rank"],
    ]  # fmt: skip
    assert "shared_rows" in (outside / "report" / "index.html").read_text(encoding="utf-8")


def test_the_contract_takes_a_transform_of_another_package(outside: Path) -> None:
    contract = ROOT / "tests" / "transforms" / "test_contract.py"
    pick = (
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-cov",
        "-k",
        "shared_rows and (12to12 or 13to17) and not compilers",
    )
    assert " passed" in run(outside, "-m", "pytest", str(contract), *pick)
