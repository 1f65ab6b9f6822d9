"""`understudy export`: a file of weights or a run becomes a file for another runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

import understudy as us
from command import Run

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def student(tmp_path: Path) -> Path:
    model = us.create_model("wrn_10_1")
    us.save(us.substitute(model, us.plan(model, "low_rank", ratio=0.5)), tmp_path / "student.safetensors")
    return tmp_path / "student.safetensors"


def test_a_file_of_weights_is_exported_and_timed_beside_its_original(
    run: Run, student: Path, tmp_path: Path
) -> None:
    arguments = (
        "export",
        student,
        "--network",
        "wrn_10_1",
        "--out",
        tmp_path / "student.pt2",
        "--batch",
        "2",
    )
    done = run(*arguments)
    assert done.code == 0, done.err
    assert "original" in done.text
    assert "batch 2" in done.text
    assert (tmp_path / "student.pt2").is_file()
    again = run(*arguments)
    assert again.code == 2
    assert "exists" in again.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "is no run: say which network it is for"),
        (("--network", "wrn_10_1", "--int8"), "--int8 needs data to calibrate by"),
        (("--network", "wrn_10_1", "--input", "3,x"), "is not a shape such as"),
    ],
)
def test_bad_input_is_refused(
    run: Run, student: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = run("export", student, "--out", tmp_path / "student.onnx", *arguments)
    assert done.code == 2
    assert words in done.err


def test_a_run_is_exported_with_eight_bits_of_its_own_images(run: Run, tmp_path: Path) -> None:
    small = ("--set", "epochs=1", "--set", "train_images=128", "--set", "network=wrn_10_1")
    trained = run("train", "demo", *small, "--out", tmp_path / "teacher")
    assert trained.code == 0, trained.err
    done = run("export", tmp_path / "teacher", "--out", tmp_path / "teacher.onnx", "--int8")
    assert done.code == 0, done.err
    other = run("export", tmp_path / "teacher", "--out", tmp_path / "other.onnx", "--input", "3,64,64")
    assert other.code == 2
    assert "--input is not for a run" in other.err
    assert "before eight bits" in done.text
    refused = run("export", tmp_path / "teacher", "--out", tmp_path / "x.onnx", "--network", "wrn_10_1")
    assert "a folder names its own" in refused.err


def test_a_network_without_stand_ins_is_exported_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    assert us.export(model, tmp_path / "plain.pt2", (2, 3, 6, 6)).error < 1e-4
