"""A captured graph as a file: ONNX, OpenVINO, PyTorch's own; what follows from parameters is not stored."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from understudy.counting.trace import Example

from .constants import hold_constants_
from .graph import ExportError, chain_of, first_line, quiet
from .naming import name_
from .runtimes import SUFFIXES, Format, _arrays, imported, not_run
from .slim import hold_as_read_, slim_onnx_, slim_xml

_SMALL = 64  # entries that a constant may have to be folded: shapes and axes, never weights
_OPERATION = re.compile(r"(?:torch\.ops\.|op='|\b(?=aten[.:]))([A-Za-z_]\w*(?:\.|::)\w+)")


def write(program: torch.export.ExportedProgram, path: Path, kind: Format, model: str) -> None:
    """Write one file (and, for OpenVINO, the weights beside it)."""
    if kind == "torch-export":
        with quiet():
            torch.export.save(program, path)
        return
    if path.suffix.lower() == SUFFIXES["onnx"]:
        _write_onnx(program, path, model)
        return
    with tempfile.TemporaryDirectory() as folder:
        between = Path(folder) / "graph.onnx"
        _write_onnx(program, between, model)
        openvino = imported("openvino")
        try:
            network = openvino.Core().read_model(str(between))
            hold_constants_(network)
            _forget_names_(network)
            openvino.serialize(network, str(path))
        except RuntimeError as error:
            raise not_run("openvino", model, error) from error
        text = path.read_text(encoding="utf-8")
        path.write_text(slim_xml(text), encoding="utf-8")


def written(path: Path) -> list[Path]:
    """The files that make up an exported network."""
    is_parted = path.suffix.lower() == SUFFIXES["openvino"]
    return [path, path.with_suffix(".bin")] if is_parted else [path]


def _write_onnx(program: torch.export.ExportedProgram, path: Path, model: str) -> None:
    onnx, optimizer = imported("onnx"), imported("onnxscript.optimizer")
    try:
        with quiet():
            made = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
            assert made is not None
            optimizer.optimize_ir(made.model, input_size_limit=_SMALL, output_size_limit=_SMALL)
            hold_as_read_(made.model.graph)
            proto = made.model_proto
    except Exception as error:  # the exporter wraps whatever it meets
        raise ExportError(_reason(error, model)) from error
    _drop_zero_biases_(proto.graph, onnx.numpy_helper.to_array)
    name_(proto.graph, program)
    slim_onnx_(proto)
    onnx.save(proto, str(path))


def _forget_names_(network: Any) -> None:
    """Number what lies between inputs and outputs: its names are text that nobody looks up."""
    for number, node in enumerate(network.get_ordered_ops()):
        if node.get_type_name() in ("Parameter", "Result"):
            continue
        node.set_friendly_name(str(number))
        for port in node.outputs():
            if all(reader.get_node().get_type_name() != "Result" for reader in port.get_target_inputs()):
                port.get_tensor().set_names(set())


def _reason(error: BaseException, model: str) -> str:
    """Which operation ONNX has no form for, found along the chain of errors, or what went wrong first."""
    for one in chain_of(error):
        for line in str(one).splitlines():
            found = _OPERATION.search(line)
            if found and ("No ONNX function" in line or "not found" in line or "No decompos" in line):
                return f"ONNX cannot express {found.group(1).replace('::', '.')}, which {model} uses"
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{model} cannot be written as ONNX: {first_line(error)}"


def _drop_zero_biases_(graph: Any, to_array: Callable[[Any], Any]) -> None:
    """The exporter gives every convolution without a bias, whose kernel is computed, one of zeros."""
    zeros = {value.name for value in graph.initializer if not value.dims and not to_array(value).any()}
    expands = [node for node in graph.node if node.op_type == "Expand" and node.input[0] in zeros]
    biases = {node.output[0] for node in expands}
    for node in graph.node:
        if node.op_type == "Conv" and node.input[2:] and node.input[2] in biases:
            del node.input[2:]
    read = _read(graph)
    gone = [node for node in expands if node.output[0] not in read]
    of_them = {name for node in gone for name in node.input}
    for node in gone:
        graph.node.remove(node)
    read = _read(graph)
    for value in [value for value in graph.initializer if value.name in of_them - read]:
        graph.initializer.remove(value)


def _read(graph: Any) -> set[str]:
    """What nodes, outputs and the graphs inside of nodes read."""
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= _read(inner)
    return names


def quantise_(path: Path, batches: Sequence[Example]) -> None:
    """Make an ONNX file eight-bit, its ranges taken from calibration batches: onnxruntime's own quantiser."""
    quantization = imported("onnxruntime.quantization")
    session = imported("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    feeds = iter([dict(zip(names, _arrays(batch), strict=True)) for batch in batches])
    onnx = imported("onnx")
    model = onnx.load(str(path))
    for number, node in enumerate(model.graph.node):
        node.name = str(number)  # by which the quantiser knows it
    grouped = [
        node.name for node in model.graph.node if node.op_type == "ConvTranspose" and _groups(node) > 1
    ]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        """The batches, one after the other."""

        def get_next(self) -> dict[str, Any] | None:
            """The next batch, or None."""
            return next(feeds, None)

    with tempfile.TemporaryDirectory() as folder, quiet():
        between, named = Path(folder) / "int8.onnx", Path(folder) / "named.onnx"
        onnx.save(model, str(named))
        try:
            quantization.quantize_static(
                str(named),
                str(between),
                Reader(),
                nodes_to_exclude=grouped,  # whose scales the quantiser takes for those of one group
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                reduce_range=True,  # weights of seven bits: with eight, sums overflow without VNNI
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
            )
        except Exception as error:  # the quantiser raises whatever it meets
            said = first_line(error)
            raise ExportError(f"onnxruntime cannot make {path.name} eight-bit: {said}") from error
        path.write_bytes(between.read_bytes())


def _groups(node: Any) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == "group"), 1)
