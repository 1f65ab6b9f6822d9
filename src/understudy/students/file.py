"""Networks on disk: one safetensors file with the weights and, in its header, what stands in where."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from understudy._util.guard import the_network
from understudy._util.layouts import lay_channels_last_, lies_channels_last
from understudy._util.records import RecordError, from_plain, to_plain
from understudy.layers.execution import DEFAULT
from understudy.layers.layer import stand_ins
from understudy.layers.opening import opened
from understudy.layers.plain import Lowered
from understudy.layers.replacement import Replacement
from understudy.transforms.hashed import Hashed

from .substitute import MisfitError, build_layers, exchange, settle_
from .tensors import HEADER_KEY, FileError, check_path, header_text, read_tensors, write_tensors
from .versions import versioned
from .wrappers import OwnNames, unwrapped

_KIND, _VERSION = "student", 4
_EXTRA = "_extra_state"  # as torch calls what a module adds to its state
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
    network = the_network(model, weights=True)
    if any(isinstance(module, Lowered) for module in network.modules()):
        raise ValueError(
            f"{type(model).__name__} holds stand-ins that were lowered, which no file can name: save the "
            "student that us.lower was given"
        )
    tensors, header = _contents(network)
    stored: dict[str, Tensor] = {}
    storages: set[int] = set()
    for key, tensor in tensors.items():
        plain = tensor.detach().contiguous()
        if plain.untyped_storage().data_ptr() in storages:
            plain = plain.clone()  # views of one memory are stored each by itself
        storages.add(plain.untyped_storage().data_ptr())
        stored[key] = plain
    write_tensors(path, stored, header)


@dataclasses.dataclass(frozen=True)
class Header:
    """What stands in where, and which names mean the same tensor."""

    kind: str
    version: int
    layers: tuple[Replacement, ...]
    aliases: Mapping[str, str]
    channels_last: bool = False  # how kernels lie in memory; in the file they lie the usual way

    def __post_init__(self) -> None:
        if self.kind != _KIND:
            raise ValueError(f"it is a {self.kind}, not a network")
        paths = [layer.path for layer in self.layers]
        if len({*paths}) < len(paths):
            raise ValueError("two stand-ins have one path")
        for layer in self.layers:
            layer.check_spec()


def load(path: str | Path, model: nn.Module, *, verify: bool = True, allow_nan: bool = False) -> nn.Module:
    """A copy of the dense network `model` with the stand-ins and the weights of a file that `save` wrote.

    A file that was changed since is refused, unless `verify=False`, and so is one with a weight that is NaN,
    unless `allow_nan=True`.

    >>> import understudy as us
    >>> us.save(us.create_model("wrn_10_1"), "network.safetensors")
    >>> type(us.load("network.safetensors", us.create_model("wrn_10_1"))).__name__
    'WideResNet'
    """
    model = unwrapped(the_network(model, copied=True))
    file = read_tensors(path, _VERSION, verify=verify, allow_nan=allow_nan)
    header, state = _read_header(path, file.header), file.tensors
    for alias, name in header.aliases.items():
        if alias in state or name not in state:
            raise FileError(f"{path}: {alias!r} cannot be another name of {name!r}")
    model = opened(model, [layer.path for layer in header.layers])
    try:
        layers = build_layers(model, header.layers, init="none")
    except MisfitError as error:
        raise FileError(f"{path}: {error}") from error
    student = exchange(model, {id(model.get_submodule(name)): layer for name, layer in layers.items()})
    weightless = any(parameter.is_meta for parameter in student.parameters())
    state |= {alias: state[name] for alias, name in header.aliases.items()}
    state |= {name: module.get_extra_state() for name, module in seeded(student).items()}
    _check_types(path, student, state)
    try:
        student.load_state_dict(versioned(state, student), assign=weightless)
    except (RuntimeError, ValueError) as error:  # names, shapes or indices that differ
        raise FileError(f"{path} does not fit {type(model).__name__}: {error}") from error
    if weightless:  # each name was given a tensor of its own
        _tie_(student, header.aliases)
    if header.channels_last:
        lay_channels_last_(student)
    return settle_(student)


def _tie_(student: nn.Module, aliases: Mapping[str, str]) -> None:
    """Let every other name of a parameter be the same parameter again."""
    for alias, name in aliases.items():
        (owner, _, own), (home, _, key) = alias.rpartition("."), name.rpartition(".")
        shared = student.get_submodule(home)._parameters.get(key)
        if shared is not None:
            student.get_submodule(owner).register_parameter(own, shared)


def _check_types(path: str | Path, student: nn.Module, state: Mapping[str, Tensor]) -> None:
    """A FileError where a number would silently become another, or an index point nowhere."""
    held: Mapping[str, object] = student.state_dict()
    for name, tensor in state.items():
        wanted = held.get(name)
        if not isinstance(wanted, Tensor):
            continue
        if wanted.is_floating_point() != tensor.is_floating_point():
            raise FileError(f"{path}: {name!r} is {tensor.dtype}, not {wanted.dtype}")
        if name.endswith(_EXTRA) and wanted.shape != tensor.shape:
            raise FileError(f"{path}: {name!r} has shape {tuple(tensor.shape)}, not {tuple(wanted.shape)}")


def is_saved(path: str | Path) -> bool:
    """Whether a file was written by `save`; any other kind of file was not."""
    check_path(path)
    try:
        with safe_open(path, framework="pt") as file:
            return HEADER_KEY in (file.metadata() or {})
    except SafetensorError:
        return False


def _read_header(path: str | Path, content: dict[str, Any] | None) -> Header:
    """The header of a file of ours; one of others has neither stand-ins nor names for one tensor."""
    if content is None:
        return Header(_KIND, _VERSION, (), {})
    try:
        layers = content.get("layers")
        if isinstance(layers, list):  # how a layer runs is there only where that was set
            default = {"execution": to_plain(DEFAULT)}
            layers = [default | layer if isinstance(layer, dict) else layer for layer in layers]
            content = content | {"layers": layers}
        return from_plain(Header, {"channels_last": False} | content)
    except RecordError as error:
        raise FileError(f"{path} has a header that understudy did not write: {error}") from error


def seeded(model: nn.Module) -> dict[str, Hashed]:
    """The modules whose extra state follows from the seed in the header, by the name of that state."""
    inside = {id(module) for _, layer in stand_ins(model) for module in layer.modules()}
    return {
        name: module
        for name, module in _by_extra_state(model).items()
        if isinstance(module, Hashed) and id(module) in inside
    }


def _by_extra_state(model: nn.Module) -> dict[str, nn.Module]:
    """All modules, in each place where one stands, by the name that an extra state has or would have."""
    return {
        f"{path}.{_EXTRA}" if path else _EXTRA: module
        for path, module in model.named_modules(remove_duplicate=False)
    }


def file_size(model: nn.Module) -> int:
    """Bytes of the file that `save` would write, header included, without writing it."""
    tensors, header = _contents(model)
    entries: dict[str, object] = {"__metadata__": {HEADER_KEY: header_text(header)}}
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


def _contents(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors to store, each once, and the header that says what they belong to."""
    tensors: dict[str, Tensor] = {}
    first_names: dict[int, str] = {}
    aliases: dict[str, str] = {}
    own_name = OwnNames(model)
    state: dict[str, object] = model.state_dict(keep_vars=True)
    for name in seeded(model):
        state.pop(name, None)
    makers = _by_extra_state(model)  # each call of them makes a tensor of its own
    for name, value in state.items():
        key, source = own_name(name), id(makers.get(name, value))
        if not isinstance(value, Tensor) or value.dtype not in _DTYPES:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{key!r} is {kind}, which understudy does not store")
        if source in first_names:
            aliases[key] = first_names[source]
        else:
            first_names[source] = key
            tensors[key] = value
    layers = [_record(replacement) for replacement in replacements(model)]
    header = {"kind": _KIND, "version": _VERSION, "layers": layers, "aliases": aliases}
    laid_out = {"channels_last": True} if any(map(lies_channels_last, tensors.values())) else {}
    return tensors, header | laid_out


def _record(replacement: Replacement) -> dict[str, object]:
    """As the header holds it; how a layer runs is in it only where that was set."""
    record: dict[str, object] = to_plain(replacement)
    if replacement.execution == DEFAULT:
        del record["execution"]
    return record


def replacements(model: nn.Module) -> list[Replacement]:
    """What stands in where in a substituted network."""
    own_name = OwnNames(model)
    made = [(Replacement.of(own_name(path), layer), layer) for path, layer in stand_ins(model)]
    for replacement, layer in made:
        seeds = [transform.seed for transform in layer.transforms if isinstance(transform, Hashed)]
        assert replacement.spec is not None
        if seeds and seeds != [spec.seed for spec in replacement.specs]:
            raise ValueError(
                f"{replacement.path!r} has groups whose seeds, {seeds}, do not follow from the first"
            )
    return [replacement for replacement, _ in made]
