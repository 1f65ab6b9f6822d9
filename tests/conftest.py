"""The command as a fixture; and a torchvision wheel built for CUDA may import beside a CPU build of torch."""

import ctypes
import dataclasses
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from command import Result, Run
from understudy.cli import main
from understudy.transforms import Transform, known_transforms


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

    Only a try tells, and it ends the process: so in one of its own, once, before the workers start.
    """
    cpu = Path("/proc/cpuinfo")
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    if is_worker or not cpu.is_file() or "amx_bf16" not in cpu.read_text(encoding="utf-8"):
        return
    attempt = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    if subprocess.run([sys.executable, "-c", attempt], capture_output=True, check=False).returncode < 0:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that many transforms and shapes go through, trace the first of each transform for coverage.

    The same lines run in the others, and the tracer doubles their time.
    """
    traced: set[tuple[str, str]] = set()
    for item in items:
        transform = _transform_of(item)
        if transform is None:
            continue
        key = (item.nodeid.partition("[")[0], transform)
        if key in traced:
            item.add_marker(pytest.mark.untraced)
        traced.add(key)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Set the tracer of coverage aside while a test runs that is marked so.

    The mark of pytest-cov stops coverage as a whole instead, which takes longer than most tests.
    """
    tracer = sys.gettrace()
    if item.get_closest_marker("untraced") is None:
        yield
        return
    sys.settrace(None)
    yield
    sys.settrace(tracer)


def _transform_of(item: pytest.Item) -> str | None:
    """The transform that a test is run with, if any; outside of the contract one stands for all."""
    if not isinstance(item, pytest.Function) or "callspec" not in vars(item):
        return None
    for value in item.callspec.params.values():
        found = vars(value).get("transform", value) if dataclasses.is_dataclass(value) else value
        name = found.name if isinstance(found, type) and issubclass(found, Transform) else found
        if isinstance(name, str) and name in known_transforms():
            return name if "transforms" in item.path.parts else "any"
    return None


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
