"""What the file of a student says beside its tensors, in bytes: names, shapes and places, and records."""

from __future__ import annotations

import json
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from understudy._util.records import to_plain
from understudy.layers.replacement import Replacement

FILE_HEADER = 264  # of the file itself, and what fills it up
_MOST_DIGITS = 12  # of a place in a file


def of_network(model: nn.Module) -> tuple[int, int]:
    """Bytes of all tensors of a network, each once, and of what a file says of them and their other names."""
    firsts: dict[int, tuple[str, Tensor]] = {}
    state = model.state_dict(keep_vars=True)
    header = 0
    for name, held in state.items():
        if isinstance(held, Tensor) and not is_lazy(held):
            first, _ = firsts.setdefault(id(held), (name, held))
            header += 0 if first == name else _alias(name, first)
    size = sum(tensor.numel() * tensor.element_size() for _, tensor in firsts.values())
    digits = len(str(size))
    return size, header + sum(_tensor(name, tensor.shape, digits) for name, tensor in firsts.values())


def of_stand_in(made: Replacement, other_paths: Sequence[str]) -> int:
    """Of one stand-in and its tensors, at most, and of their names in the other places where it stands."""
    record = to_plain(made)
    del record["execution"]
    parts = [f"convs.{group}." for group in range(made.groups)] if made.groups > 1 else [""]
    tensors = [(f"{part}transform.{name}", shape) for name, shape in _tensors_of(made) for part in parts]
    if made.way in ("separable", "inside"):
        tensors += [(f"{part}depthwise.weight", (made.in_features, 1, *made.kernel)) for part in parts]
    said = json.dumps(json.dumps(record))
    length = len(said)
    for name, shape in tensors:
        first = f"{made.path}.{name}"
        length += _tensor(first, shape, _MOST_DIGITS)
        length += sum(_alias(f"{path}.{name}", first) for path in other_paths)
    return length


def _tensors_of(made: Replacement) -> list[tuple[str, Sequence[int]]]:
    """Names and shapes of what one structured matrix holds."""
    assert made.spec is not None
    shape = made.matrix_in_features, made.out_features // made.groups
    transform = made.spec.build(*shape, torch.device("meta"), None)
    state = transform.state_dict()
    return [(name, held.shape) for name, held in state.items() if isinstance(held, Tensor)]


def _tensor(name: str, shape: Sequence[int], digits: int) -> int:
    """Of one tensor: its name, type, shape, and where it begins and ends."""
    listed = ",".join(map(str, shape))
    said = f'"{name}":{{"dtype":"BF16","shape":[{listed}],"data_offsets":[,]}},'
    return len(said.encode()) + 2 * digits


def _alias(name: str, first: str) -> int:
    """Of another name of a tensor: both are quoted within a quotation."""
    return len(json.dumps(json.dumps({name: first})))
