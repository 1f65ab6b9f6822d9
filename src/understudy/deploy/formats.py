"""A captured graph as a file: ONNX, OpenVINO, PyTorch's own; what follows from parameters is not stored."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from understudy.counting.trace import Example

from .graph import ExportError
from .runtimes import Format, _arrays, imported, not_run

_SMALL = 64  # entries that a constant may have to be folded: shapes and axes, never weights
_OPERATION = re.compile(r"(?:torch\.ops\.|op='|<OpOverload\(op='|\b)(aten[.:]+[A-Za-z_0-9]+)")


def write(program: torch.export.ExportedProgram, path: Path, kind: Format, model: str) -> None:
    """Write one file (and, for OpenVINO, the weights beside it)."""
    if kind == "torch-export":
        with _quiet():
            torch.export.save(program, path)
        return
    if kind == "onnx":
        _write_onnx(program, path, model)
        return
    with tempfile.TemporaryDirectory() as folder:
        between = Path(folder) / "graph.onnx"
        _write_onnx(program, between, model)
        openvino = imported("openvino")
        try:
            openvino.serialize(openvino.Core().read_model(str(between)), str(path))  # nothing is folded
        except RuntimeError as error:
            raise not_run("openvino", model, error) from error


def written(path: Path, kind: Format) -> list[Path]:
    """The files that make up an exported network."""
    return [path, path.with_suffix(".bin")] if kind == "openvino" else [path]


def _write_onnx(program: torch.export.ExportedProgram, path: Path, model: str) -> None:
    onnx, optimizer = imported("onnx"), imported("onnxscript.optimizer")
    try:
        with _quiet():
            made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
            assert made is not None
            optimizer.optimize_ir(made.model, input_size_limit=_SMALL, output_size_limit=_SMALL)
            proto = made.model_proto
    except Exception as error:  # the exporter wraps whatever it meets
        raise ExportError(_reason(error, model)) from error
    _strip(proto)
    onnx.save(proto, str(path))


def _reason(error: BaseException | None, model: str) -> str:
    """Which operation ONNX has no form for, found along the chain of errors, or what went wrong."""
    text = str(error)
    while error is not None:
        for line in str(error).splitlines():
            found = _OPERATION.search(line)
            if found and ("No ONNX function" in line or "not found" in line or "No decompos" in line):
                return f"ONNX cannot express {found.group(1).replace('::', '.')}, which {model} uses"
        error = error.__cause__ or error.__context__
    lines = [line for line in text.splitlines() if line.strip()]
    return f"{model} cannot be written as ONNX: {lines[0] if lines else 'for no stated reason'}"


def _strip(proto: Any) -> None:
    """Take out what only explains the graph: source paths and inferred shapes outweigh a small student."""
    graph = proto.graph
    del proto.metadata_props[:], graph.metadata_props[:], graph.value_info[:]
    for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        part.doc_string = ""
        del part.metadata_props[:]


def quantise_(path: Path, batches: Sequence[Example]) -> None:
    """Make an ONNX file eight-bit, its ranges taken from calibration batches: onnxruntime's own quantiser."""
    quantization = imported("onnxruntime.quantization")
    session = imported("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    feeds = iter([dict(zip(names, _arrays(batch), strict=True)) for batch in batches])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        """The batches, one after the other."""

        def get_next(self) -> dict[str, Any] | None:
            """The next batch, or None."""
            return next(feeds, None)

    with tempfile.TemporaryDirectory() as folder, _quiet():
        between = Path(folder) / "int8.onnx"
        quantization.quantize_static(
            str(path),
            str(between),
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        path.write_bytes(between.read_bytes())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters warn of themselves and print: neither is about the network."""
    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "onnxscript", "onnx_ir", "")}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for name in levels:
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
