"""What the file of a student says beside its tensors, in bytes: names, shapes and places, and records."""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from understudy._util.records import to_plain
from understudy.layers.replacement import Replacement

FILE_HEADER = 128  # of the file itself
_MOST_DIGITS = 12  # of a place in a file
_MOST_TENSORS = 4  # of one structured matrix that another name may have


def of_network(model: nn.Module) -> int:
    """Of all tensors of a network, each once, and of their other names, at most."""
    names: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    tensors = {key: held for key, held in state.items() if isinstance(held, Tensor) and not is_lazy(held)}
    digits = len(str(sum(tensor.nbytes for tensor in tensors.values())))
    length = 0
    for name, tensor in tensors.items():
        first = names.setdefault(id(tensor), name)
        length += _tensor(name, tensor.shape, digits) if first == name else _alias(name, first)
    return length


def of_other_names(network: nn.Module, groups: Mapping[str, int]) -> int:
    """Of the names that stand-ins have in further places, at most: paths of layers → their groups."""
    places: dict[int, list[str]] = collections.defaultdict(list)
    for path, module in network.named_modules(remove_duplicate=False):
        places[id(module)].append(f"{path}.convs.0.transform.weight")
    return sum(
        (1 + _MOST_TENSORS * count) * _alias(other, path)
        for path, count in groups.items()
        for other in places[id(network.get_submodule(path))][1:]
    )


def of_stand_in(made: Replacement) -> int:
    """Of one stand-in and its tensors, at most."""
    record = to_plain(made)
    del record["execution"]
    parts = [f"convs.{group}." for group in range(made.groups)] if made.groups > 1 else [""]
    tensors = [(f"{part}transform.{name}", shape) for name, shape in _tensors_of(made) for part in parts]
    if made.way in ("separable", "inside"):
        tensors += [(f"{part}depthwise.weight", (made.in_features, 1, *made.kernel)) for part in parts]
    said = json.dumps(json.dumps(record, separators=(",", ":")))
    return len(said) + sum(_tensor(f"{made.path}.{name}", shape, _MOST_DIGITS) for name, shape in tensors)


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
    return len(rf"\"{name}\":\"{first}\",".encode())
