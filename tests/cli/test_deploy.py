"""`understudy export`: a file of weights or a run becomes a file for another runtime."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
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
    assert "student.pt2 exists; --overwrite writes over it" in again.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "is no run: say which network it is for"),
        (("--network", "wrn_10_1", "--int8"), "--int8 needs data to calibrate by"),
        (("--network", "wrn_10_1", "--input", "3,x"), "is not a shape such as"),
        (
            ("--network", "wrn_10_1", "--data", "digits"),
            "--data is for a run, or to calibrate by: give --int8",
        ),
        (
            ("--network", "wrn_10_1", "--data", "digits", "--int8"),
            "--data digits gives inputs of 3,8,8, the file takes 3,32,32: --input 3,8,8 changes that",
        ),
        (("--format", "torch-export"), "student.onnx does not end in .pt2"),
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
    out = ("--out", tmp_path / "teacher.onnx")
    done = run("export", tmp_path / "teacher", *out, "--int8", "--test-samples", 70)
    assert done.code == 0, done.err
    assert "of 70 test samples, the same class" in done.text
    assert "; accuracy " in done.text
    other = run("export", tmp_path / "teacher", "--out", tmp_path / "other.onnx", "--input", "3,64,64")
    assert other.code == 2
    assert "--input is not for a run" in other.err
    assert "before eight bits" in done.text
    refused = run("export", tmp_path / "teacher", "--out", tmp_path / "x.onnx", "--network", "wrn_10_1")
    assert "a folder names its own" in refused.err


NETWORK = """
import torch

def network():
    return torch.nn.Sequential(torch.nn.Linear(8, 4))

def labelled():
    x = torch.linspace(-1, 1, 32 * 8).reshape(32, 8)
    return [(x, network()(x).argmax(1) * 0 + 1) for _ in range(3)]
"""


def test_a_file_of_weights_is_calibrated_by_what_data_names(run: Run, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NETWORK)
    weights = {"0.weight": torch.zeros(4, 8), "0.bias": torch.eye(4)[1]}  # always the second class
    torch.save(weights, tmp_path / "weights.pt")
    of = ("--network", f"{tmp_path}/net.py:network", "--input", "8", "--int8")
    done = run(
        "export",
        tmp_path / "weights.pt",
        *of,
        "--out",
        tmp_path / "eight.onnx",
        "--data",
        f"{tmp_path}/net.py:labelled",
    )
    assert done.code == 0, done.err
    assert (
        "of 32 test samples, the same class 100.0 %; accuracy 100.0 %, before eight bits 100.0 %" in done.text
    )


def test_a_runtime_that_is_missing_is_named_by_its_extra(
    run: Run, student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    done = run("export", student, "--network", "wrn_10_1", "--out", tmp_path / "student.xml")
    assert done.code == 2
    assert "pip install 'understudy[openvino]'" in done.err


def test_a_network_without_stand_ins_is_exported_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten())
    assert us.export(model, tmp_path / "plain.pt2", (2, 3, 6, 6)).error < 1e-4
