"""Networks on disk: one safetensors file with the weights and, in its header, what stands in where."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from understudy._util.files import whole_file
from understudy.layers.execution import DEFAULT
from understudy.layers.layer import stand_ins
from understudy.layers.opening import opened
from understudy.layers.replacement import Replacement

from .substitute import build_layers, exchange, settle_
from .versions import versioned
from .wrappers import OwnNames

HEADER_KEY, _VERSION = "understudy", 3
_EMPTY = json.dumps({"version": _VERSION, "layers": [], "aliases": {}})
# The order in which safetensors lays tensors out: by dtype, the last of these first, then by name.
_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int16: "I16",
    torch.uint16: "U16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.uint32: "U32",
    torch.float32: "F32",
    torch.complex64: "C64",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.uint64: "U64",
}


def save(model: nn.Module, path: str | Path) -> None:
    """Write a network, substituted or not. Fixed random indices are stored as seeds; nothing is pickled.

    What torch.compile or a parallel wrapper is around, or inside, is stored under its own names. The file
    appears whole or not at all.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> us.save(us.substitute(model, us.plan(model, "hashed", ratio=0.2)), "student.safetensors")
    """
    tensors, header = _contents(model)
    stored: dict[str, Tensor] = {}
    storages: set[int] = set()
    for key, tensor in tensors.items():
        plain = tensor.detach().contiguous()
        if plain.untyped_storage().data_ptr() in storages:
            plain = plain.clone()  # views of one memory are stored each by itself
        storages.add(plain.untyped_storage().data_ptr())
        stored[key] = plain
    write_tensors(path, stored, header)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], header: str) -> None:
    """Write tensors and a header of ours as one safetensors file, whole or not at all."""
    with whole_file(path) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata={HEADER_KEY: header})
        except SafetensorError as error:  # a full disk, say
            raise OSError(f"cannot write {path}: {error}") from error


def load(path: str | Path, model: nn.Module) -> nn.Module:
    """A copy of the dense network `model` with the stand-ins and the weights of a file that `save` wrote.

    >>> import understudy as us
    >>> us.save(us.create_model("wrn_10_1"), "network.safetensors")
    >>> type(us.load("network.safetensors", us.create_model("wrn_10_1"))).__name__
    'WideResNet'
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state: dict[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
    replaced, aliases = _read_header(path, metadata.get(HEADER_KEY, _EMPTY), state)
    model = opened(model, [layer.path for layer in replaced])
    layers = build_layers(model, replaced, init="none")
    student = exchange(model, {id(model.get_submodule(name)): layer for name, layer in layers.items()})
    weightless = any(parameter.is_meta for parameter in student.parameters())
    state |= {alias: state[name] for alias, name in aliases.items()}
    student.load_state_dict(versioned(state, student), assign=weightless)
    return settle_(student)


def is_saved(path: str | Path) -> bool:
    """Whether a file was written by `save`; any other kind of file was not."""
    try:
        with safe_open(path, framework="pt") as file:
            return HEADER_KEY in (file.metadata() or {})
    except SafetensorError:
        return False


def _read_header(
    path: str | Path, text: str, state: Mapping[str, Tensor]
) -> tuple[list[Replacement], dict[str, str]]:
    """What stands in where, and which names mean the same tensor."""
    try:
        header = json.loads(text)
        version = header["version"]
        if version == _VERSION:
            aliases = dict(header["aliases"])
            missing = set(aliases.values()) - set(state)
            if missing:
                raise KeyError(*missing)
            return [Replacement.from_dict(layer) for layer in header["layers"]], aliases
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has a header that understudy did not write: {error!r}") from error
    raise ValueError(f"{path} has version {version!r}; this understudy reads version {_VERSION}")


def file_size(model: nn.Module) -> int:
    """Bytes of the file that `save` would write, header included, without writing it."""
    tensors, header = _contents(model)
    entries: dict[str, object] = {"__metadata__": {HEADER_KEY: header}}
    order = list(_DTYPES)
    offset = 0
    for key, tensor in sorted(tensors.items(), key=lambda item: (-order.index(item[1].dtype), item[0])):
        end = offset + tensor.numel() * tensor.element_size()
        entries[key] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    length = len(json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode())
    return 8 + math.ceil(length / 8) * 8 + offset


def _contents(model: nn.Module) -> tuple[dict[str, Tensor], str]:
    """The tensors to store, each once, and the header that says what they belong to."""
    tensors: dict[str, Tensor] = {}
    first_names: dict[int, str] = {}
    aliases: dict[str, str] = {}
    own_name = OwnNames(model)
    state: Mapping[str, object] = model.state_dict(keep_vars=True)
    for key, value in ((own_name(name), value) for name, value in state.items()):
        if not isinstance(value, Tensor) or value.dtype not in _DTYPES:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{key!r} is {kind}, which understudy does not store")
        if id(value) in first_names:
            aliases[key] = first_names[id(value)]
        else:
            first_names[id(value)] = key
            tensors[key] = value
    layers = [_record(replacement) for replacement in replacements(model)]
    return tensors, json.dumps({"version": _VERSION, "layers": layers, "aliases": aliases})


def _record(replacement: Replacement) -> dict[str, object]:
    """As the header holds it; how a layer runs is in it only where that was set."""
    record = dataclasses.asdict(replacement)
    if replacement.execution == DEFAULT:
        del record["execution"]
    return record


def replacements(model: nn.Module) -> list[Replacement]:
    """What stands in where in a substituted network."""
    own_name = OwnNames(model)
    return [Replacement.of(own_name(path), layer) for path, layer in stand_ins(model)]
