"""The command as a fixture; and a torchvision wheel built for CUDA may import beside a CPU build of torch."""

import ctypes
import importlib.util
import os
import signal
import subprocess
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


def pytest_configure() -> None:
    """Keep oneDNN from AMX where the processor announces it and cannot run it, as in some virtual machines.

    Only a try tells, and it ends the process: so in one of its own, once, before the workers start. And let
    SIGINT interrupt, which a shell has the commands that it runs in the background ignore.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cpu = Path("/proc/cpuinfo")
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if is_worker or not cpu.is_file() or "amx_bf16" not in cpu.read_text(encoding="utf-8"):
        return
    attempt = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    if subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False).returncode < 0:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is slow comes first, so that no process is left with it alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


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
