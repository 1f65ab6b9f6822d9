"""What only explains a written graph, or is said by default, taken out: text outweighs a small student."""

from __future__ import annotations

import itertools
import math
import re
import string
from typing import Any

from .naming import all_graphs, names_in, rename_
from .runtimes import imported

_DIGITS = string.digits + string.ascii_lowercase
# Lists that are the same where nothing is said, by their one value; the schemas of ONNX do not tell.
_EVERYWHERE = {"dilations": 1, "strides": 1, "pads": 0}
# What a reader of OpenVINO takes where convolutions say nothing, and they alone.
_XML_CONVOLUTION = re.compile(r'type="(?:Group)?Convolution" [^>]*><data [^>]*>')
_XML_DEFAULTS = re.compile(
    r' (?:strides|dilations)="1(?:, 1)*"| pads_(?:begin|end)="0(?:, 0)*"| auto_pad="explicit"'
)


def hold_as_read_(graph: Any) -> None:
    """Take moves out of a graph of onnx_ir: those that change nothing, and those of a tensor that it holds.

    What is looked up is reshaped to the shape that it has; what one reshape or transpose reads is held so.
    """
    ir = imported("onnx_ir")
    given = {id(value) for value in graph.outputs}
    for node in list(graph):
        if node.op_type not in ("Reshape", "Transpose") or id(node.outputs[0]) in given:
            continue
        source, shape = node.inputs[0], node.outputs[0].shape
        if shape is None or source.shape is None or not shape.is_static():
            continue
        is_held = source.name in graph.initializers and source.const_value is not None
        if is_held and len(source.uses()) == 1 and id(source) not in given:
            held = source.const_value.numpy()
            axes = node.attributes["perm"].as_ints() if "perm" in node.attributes else None
            moved = held.transpose(axes) if node.op_type == "Transpose" else held.reshape(shape.numpy())
            source.const_value = ir.tensor(moved.copy(), name=source.name)
            source.shape = ir.Shape(moved.shape)
        elif node.op_type == "Transpose" or source.shape != shape:
            continue
        for reader, place in list(node.outputs[0].uses()):
            reader.replace_input_with(place, source)
        graph.remove(node, safe=True)
    for name, value in list(graph.initializers.items()):
        if not value.uses() and id(value) not in given:  # the shapes of what is gone
            del graph.initializers[name]


def slim_onnx_(proto: Any) -> None:
    """Leave what a runtime reads of an ONNX model, under short names.

    Names stay of inputs, outputs and the network's own tensors; nodes have none.
    """
    del proto.metadata_props[:]
    versions = {each.domain: each.version for each in proto.opset_import}
    graphs = list(all_graphs(proto.graph))
    whole = {
        value.name
        for graph in graphs
        for value in graph.initializer
        if 0 not in imported("onnx").numpy_helper.to_array(value)
    }
    for graph in graphs:
        del graph.metadata_props[:], graph.value_info[:]
        for part in (*graph.node, *graph.initializer, *graph.input, *graph.output):
            part.doc_string = ""
            del part.metadata_props[:]
        for node in graph.node:
            node.name = ""
            defaults = _defaults(node.op_type, node.domain, versions.get(node.domain, 1))
            for attribute in [each for each in node.attribute if _is_said(each, node, defaults, whole)]:
                node.attribute.remove(attribute)
    _shorten_(graphs)


def slim_xml(text: str) -> str:
    """A file of OpenVINO without indentation, names and defaults, and shapes that a reader finds again."""
    text = re.sub(r"\s*/>", "/>", re.sub(r">\s+<", "><", text))
    text = re.sub(r'(<layer id="\d+") name="\d+"', r'\1 name=""', text)
    text = re.sub(_XML_CONVOLUTION, lambda layer: re.sub(_XML_DEFAULTS, "", layer[0]), text)
    text = text.replace("<data/>", "")
    text = re.sub(r"(?<=\d), (?=\d)", ",", text)
    text = re.sub(r"<dim>-?\d+</dim>", "", text).replace('<data auto_broadcast="numpy"/>', "")
    text = re.sub(r"(<port [^>/]*)></port>", r"\1/>", text)
    return re.sub(r"<input>.*?</input>", lambda ports: re.sub(r' precision="\w+"', "", ports[0]), text)


def _defaults(kind: str, domain: str, version: int) -> dict[str, Any]:
    """What the attributes of an operation are where a node does not say."""
    onnx = imported("onnx")
    if not onnx.defs.has(kind, domain):
        return {}
    attributes = onnx.defs.get_schema(kind, version, domain).attributes
    found = {name: each.default_value for name, each in attributes.items()}
    return {name: onnx.helper.get_attribute_value(value) for name, value in found.items() if value.type}


def _is_said(attribute: Any, node: Any, defaults: dict[str, Any], whole: set[str]) -> bool:
    """Whether an attribute says nothing that is not so without it."""
    value = imported("onnx").helper.get_attribute_value(attribute)
    if attribute.name in defaults:
        default = defaults[attribute.name]
        if isinstance(value, float):
            return math.isclose(value, default, rel_tol=1e-6)
        # A shape without zeros is the same either way.
        return bool(value == default) or (attribute.name == "allowzero" and node.input[1] in whole)
    return attribute.name in _EVERYWHERE and all(each == _EVERYWHERE[attribute.name] for each in value)


def _shorten_(graphs: list[Any]) -> None:
    """Number the values between inputs and outputs, in digits and letters."""
    outer = graphs[0]
    kept = {value.name for value in (*outer.input, *outer.output)} | {""}
    kept |= {value.name for graph in graphs for value in graph.initializer if "." in value.name}
    numbers = (name for name in map(_short, itertools.count()) if name not in kept)
    inner = dict.fromkeys(name for graph in graphs for name in names_in(graph) if name not in kept)
    names = {name: next(numbers) for name in inner}
    for graph in graphs:
        rename_(graph, names)


def _short(number: int) -> str:
    """A number in base 36."""
    rest, digit = divmod(number, len(_DIGITS))
    return (_short(rest) if rest else "") + _DIGITS[digit]
