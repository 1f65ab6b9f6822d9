"""What a file calls its inputs (arguments), outputs (keys, or `output`) and first axis (`batch`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils._pytree import tree_leaves, tree_unflatten

_BATCH = "batch"


def name_(graph: Any, program: torch.export.ExportedProgram) -> None:
    """Name what goes into a graph of ONNX and what comes out as the network's arguments and results."""
    given, made = ([value.name for value in values] for values in (graph.input, graph.output))
    wanted = [*_argument_names(program), *_result_names(program)]
    if len(wanted) != len(given) + len(made):  # a result that is several values has no one name
        return
    counts = Counter([*given, *made])
    pairs = [(old, new) for old, new in zip([*given, *made], wanted, strict=True) if counts[old] == 1]
    taken = {name for inner in all_graphs(graph) for name in names_in(inner)} - {old for old, _ in pairs}
    names = {}
    for old, new in pairs:  # an argument before a result of the same name
        while new in taken:
            new += "_"
        names[old] = new
        taken.add(new)
    for inner in all_graphs(graph):
        rename_(inner, names)
    symbols = {_dims(value)[0].dim_param for value in graph.input if len(_dims(value))} - {""}
    for inner in all_graphs(graph) if symbols else ():
        for value in (*inner.input, *inner.output):
            for dim in (one for one in _dims(value) if one.dim_param):
                dim.dim_param = re.sub(rf"\b(?:{'|'.join(symbols)})\b", _BATCH, dim.dim_param)


def _argument_names(program: torch.export.ExportedProgram) -> list[str]:
    return [name for name in program.graph_signature.user_inputs if isinstance(name, str)]


def _result_names(program: torch.export.ExportedProgram) -> list[str]:
    """Of every result that is a value: `output`, `output_0` of several, or the key of a mapping."""
    specs = program.graph_signature.output_specs
    kept = [one for one in specs if one.kind == OutputKind.USER_OUTPUT]
    form = program.call_spec.out_spec
    assert form is not None
    names = list(_named(tree_unflatten(list(range(len(kept))), form), ""))
    return [
        name
        for name, one in zip(names, kept, strict=True)
        if not isinstance(one.arg, ConstantArgument)  # which is in no file
    ]


def _named(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, int):
        yield name or "output"
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _named(part, f"{name}_{key}" if name else str(key))
    elif isinstance(value, tuple | list):
        for number, part in enumerate(value):
            yield from _named(part, f"{name or 'output'}_{number}")
    else:  # a class of someone's own, of which the order is known alone
        yield from (f"{name or 'output'}_{number}" for number, _ in enumerate(tree_leaves(value)))


def all_graphs(graph: Any) -> Iterator[Any]:
    """A graph, and those inside of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.output:  # else it is no graph, and what touched it would make it one
                    yield from all_graphs(inner)


def names_in(graph: Any) -> Iterator[str]:
    """Of all that a graph is given, holds or makes."""
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from node.output


def rename_(graph: Any, names: Mapping[str, str]) -> None:
    """Other names for the values of one graph."""
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def _dims(value: Any) -> Any:
    return value.type.tensor_type.shape.dim
