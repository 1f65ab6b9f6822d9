"""Exported files in the runtimes that run them: open one, call it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from understudy.counting.trace import Example

from .graph import ExportError, as_call, first_line

Format = Literal["onnx", "openvino", "torch-export"]
FORMATS: tuple[Format, ...] = get_args(Format)
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "openvino": ".xml", "torch-export": ".pt2"}
_READ_TOO: dict[Format, str] = {"openvino": ".onnx"}  # by the runtime of a format that is named
Runner = Callable[[Example], list[Tensor]]


def imported(module: str, extra: str | None = None) -> Any:
    """A module of an optional package; an ImportError names the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = extra or ("openvino" if module.partition(".")[0] == "openvino" else "onnx")
        raise ImportError(f"{module} is not installed: pip install 'understudy[{extra}]'") from error


def target_of(path: Path, wanted: str | None) -> tuple[Path, Format]:
    """The file to write, and in which format: the one asked for, or the one that the suffix means.

    A name without a suffix gets that of the format asked for; another format's suffix, or none of any
    format's, is refused. OpenVINO reads files of ONNX too.
    """
    if wanted is not None and wanted not in FORMATS:
        raise ValueError(f"format {wanted!r} is not one of {', '.join(FORMATS)}")
    for name, suffix in SUFFIXES.items():
        if wanted in (None, name) and path.suffix.lower() == suffix:
            return path, name
        if wanted == name and not path.suffix and path.name:
            return path.with_suffix(suffix), name
        if wanted == name and path.suffix.lower() == _READ_TOO.get(name):
            return path, name
        if wanted == name:
            legal = " or ".join(filter(None, (suffix, _READ_TOO.get(name))))
            raise ValueError(f"{path.name} does not end in {legal}, as files of the format {name} do")
    means = ", ".join(f"{suffix} ({name})" for name, suffix in SUFFIXES.items())
    raise ValueError(f"{path.name} does not say its format: end it in {means}, or name the format")


def needed(kind: Format) -> None:
    """Raise an ImportError that names the extra unless what writes and runs a format is there."""
    for module in {
        "onnx": ("onnx", "onnxscript", "onnxruntime"),
        "openvino": ("onnx", "onnxscript", "openvino"),
    }.get(kind, ()):
        imported(module, kind)


def opened(path: Path, kind: Format) -> Runner:
    """A file in its runtime: an example in, the tensors of its outputs out; an ExportError if it refuses."""
    needed(kind)
    try:
        if kind == "onnx":
            return _onnxruntime(path)
        return _openvino(path) if kind == "openvino" else _torch_export(path)
    except Exception as error:  # whatever a runtime raises
        raise not_run(kind, path.name, error) from error


def not_run(kind: Format, name: str, error: Exception) -> ExportError:
    """What a runtime raised, as one line."""
    runtime = {"onnx": "ONNX Runtime", "openvino": "OpenVINO"}.get(kind, "PyTorch")
    return ExportError(f"{runtime} cannot run {name}: {first_line(error)}")


def _arrays(example: Example) -> list[Any]:
    args, kwargs = as_call(example)
    leaves = tree_leaves((args, kwargs))
    return [leaf.detach().cpu().contiguous().numpy() for leaf in leaves if isinstance(leaf, Tensor)]


def _onnxruntime(path: Path) -> Runner:
    runtime = imported("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(example: Example) -> list[Tensor]:
        feeds = dict(zip(names, _arrays(example), strict=True))
        return [torch.from_numpy(array) for array in session.run(None, feeds)]

    return run


def _openvino(path: Path) -> Runner:
    core = imported("openvino").Core()
    # Single precision, as exported: by default the plugin may take half of the bits.
    compiled = core.compile_model(core.read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(example: Example) -> list[Tensor]:
        given = compiled(_arrays(example))
        return [torch.from_numpy(given[output]) for output in compiled.outputs]

    return run


def _torch_export(path: Path) -> Runner:
    module = torch.export.load(path).module()

    def run(example: Example) -> list[Tensor]:
        args, kwargs = as_call(example)
        with torch.no_grad():
            return [leaf for leaf in tree_leaves(module(*args, **kwargs)) if isinstance(leaf, Tensor)]

    return run
