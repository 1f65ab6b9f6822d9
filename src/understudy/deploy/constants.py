"""What a graph of OpenVINO computes from constants alone, held where that makes the file smaller."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from .runtimes import imported

# Bytes of XML, on average: of a node, of each value that it reads, of a constant.
_NODE, _READ, _CONSTANT = 175, 75, 175
_SMALL = 512  # bytes of a constant that is looked for among the others
_HELD = {"f16", "f32", "f64", "i8", "u8", "i32", "i64", "boolean"}  # what NumPy has the same of
# Outputs, and what draws numbers or may.
_KEPT = {"Result", "RandomUniform", "Multinomial", "If", "Loop", "TensorIterator"}


@dataclasses.dataclass
class _Value:
    """What a node computes from constants, and all that is computed for it alone."""

    node: Any
    above: _Value | None  # through which all that reads it goes, at last
    depth: int
    total: int  # bytes in the file
    saved: int = 0  # of them, where `held` are constants
    held: list[Any] = dataclasses.field(default_factory=list)

    def decide_(self) -> None:
        """Hold it, or what of its parts is worth it; they have decided."""
        port = self.node.output(0)
        size = _bytes(port) if self.node.get_output_size() == 1 else 0
        gain = self.total - _CONSTANT - size if size else 0
        if gain > self.saved:
            self.saved, self.held = gain, [port]
        if self.above:
            self.above.total += self.total
            self.above.saved += self.saved
            self.above.held += self.held


def hold_constants_(network: Any) -> None:
    """Hold what takes fewer bytes so than the nodes that compute it, and small constants that are equal once.

    The arithmetic on known shapes vanishes, norms are a product and a sum, and small matrices stand as they
    are; the large ones that a few nodes compute from fewer parameters stay computed.
    """
    _hold_shapes_(network)
    _fold_norms_(network)
    _hold_what_is_smaller_(network)
    _hold_once_(network)


def _hold_shapes_(network: Any) -> None:
    openvino = imported("openvino")
    for node in network.get_ordered_ops():
        if node.get_type_name() == "ShapeOf" and node.input_value(0).get_partial_shape().is_static:
            shape = np.array(node.input_value(0).get_shape(), dtype=node.get_element_type().to_dtype())
            node.output(0).replace(openvino.opset13.constant(shape).output(0))


def _fold_norms_(network: Any) -> None:
    """Batch norms in inference as x · scale + shift: two constants in the place of four."""
    openvino = imported("openvino")
    for node in network.get_ordered_ops():
        if node.get_type_name() != "BatchNormInference":
            continue
        x, *held = (port.get_source_output() for port in node.inputs())
        if any(port.get_node().get_type_name() != "Constant" for port in held):
            continue
        exact = [port.get_node().get_data().astype(np.float64) for port in held]
        gamma, beta, mean, variance = exact
        scale = gamma / np.sqrt(variance + node.get_attributes()["epsilon"])
        shape = (1, -1, *(1 for _ in range(len(x.get_partial_shape()) - 2)))
        kind = held[0].get_element_type().to_dtype()
        scale, shift = (each.astype(kind).reshape(shape) for each in (scale, beta - mean * scale))
        scaled = openvino.opset13.multiply(x, openvino.opset13.constant(scale))
        made = openvino.opset13.add(scaled, openvino.opset13.constant(shift))
        node.output(0).replace(made.output(0))


def _hold_what_is_smaller_(network: Any) -> None:
    openvino = imported("openvino")
    values = _values(network)
    for value in reversed(values):
        value.decide_()
    chosen = [port for value in values if value.above is None for port in value.held]
    if not chosen:
        return
    exact = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    run = openvino.Core().compile_model(openvino.Model(chosen, []), "CPU", exact)
    for port, found in zip(chosen, run({}).values(), strict=True):
        port.replace(openvino.opset13.constant(found.copy()).output(0))


def _hold_once_(network: Any) -> None:
    """A hash takes the same few numbers again in every layer."""
    held: dict[tuple[str, tuple[int, ...], bytes], Any] = {}
    for node in network.get_ordered_ops():
        if node.get_type_name() == "Constant" and 0 < _bytes(node.output(0)) <= _SMALL:
            value = node.get_data()
            first = held.setdefault((str(value.dtype), value.shape, value.tobytes()), node)
            if first is not node:
                node.output(0).replace(first.output(0))


def _bytes(port: Any) -> int:
    """Of a value that can be held; 0 of what cannot."""
    kind = port.get_element_type()
    can_be = kind.get_type_name() in _HELD and port.get_partial_shape().is_static
    return int(kind.size) * math.prod(port.get_shape()) if can_be else 0


def _values(network: Any) -> list[_Value]:
    """All that follows from constants, what reads before what is read."""
    nodes = {node.get_name(): node for node in network.get_ordered_ops()}
    fixed: set[str] = set()
    for name, node in nodes.items():
        given = [port.get_source_output().get_node().get_name() for port in node.inputs()]
        is_computed = given and node.get_type_name() not in _KEPT
        if node.get_type_name() == "Constant" or (is_computed and fixed.issuperset(given)):
            fixed.add(name)
    found: dict[str, _Value] = {}
    for name in reversed([name for name in nodes if name in fixed]):
        node = nodes[name]
        readers = [
            reader.get_node().get_name() for port in node.outputs() for reader in port.get_target_inputs()
        ]
        above = _common([found.get(reader) for reader in readers])
        found[name] = _Value(node, above, above.depth + 1 if above else 0, _cost(node))
    return list(found.values())


def _common(values: list[_Value | None]) -> _Value | None:
    """The first through which all of them go; None where one of them is read by the rest of the network."""
    if not values or None in values:
        return None
    found: _Value | None = values[0]
    for value in values[1:]:
        other = value
        while found is not other:
            if found is None or other is None:
                return None
            found, other = (found.above, other) if found.depth >= other.depth else (found, other.above)
    return found


def _cost(node: Any) -> int:
    """The bytes of a node in the file."""
    if node.get_type_name() == "Constant":
        return _CONSTANT + int(node.get_byte_size())
    return _NODE + _READ * int(node.get_input_size())
