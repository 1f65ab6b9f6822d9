"""The command as a fixture; and a torchvision wheel built for CUDA may import beside a CPU build of torch."""

import ctypes
import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from command import Result, Run
from understudy.cli import main


def declare_missing_torchvision_operators() -> None:
    """Declare the two operators that torchvision's import refers to, unless its own library brings them."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        ctypes.CDLL(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


declare_missing_torchvision_operators()


@pytest.fixture(autouse=True)
def unbounded_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as wide as they are, whatever the terminal of the one who runs the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`understudy` with these arguments, in this process."""

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["understudy", *map(str, arguments)])
        monkeypatch.setattr(sys, "path", [*sys.path])
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        assert isinstance(code, int)
        return Result(code, captured.out, captured.err)

    return call
