"""Tensors on disk: one safetensors file with a header of ours, which holds the digest of all of it.

What is read is what was written, or an error: a flipped bit, another type, a name or a header that was
changed by hand does not match the digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from understudy._util.files import whole_file
from understudy._util.records import InputError, RecordError, as_table, parse_json

HEADER_KEY = "understudy"
_NO_DIGEST = f"sha256:{'0' * 64}"  # as long as any


class FileError(InputError):
    """A file that is not what it should be: damaged, changed, or of another kind or version."""


@dataclasses.dataclass(frozen=True)
class TensorFile:
    """Tensors by name, and the header that belongs to them; None in a file that is not ours."""

    tensors: dict[str, Tensor]
    header: dict[str, Any] | None


def header_text(header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> str:
    """The header as text, with the digest; without tensors with something as long in its place."""
    held = {key: value for key, value in header.items() if key != "digest"}
    found = _NO_DIGEST if tensors is None else _digest(held, tensors)
    return json.dumps({**held, "digest": found}, allow_nan=False)


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header of ours as one safetensors file, whole or not at all."""
    text = header_text(header, tensors)
    with whole_file(path) as temporary:
        try:
            save_file(dict(tensors), temporary, metadata={HEADER_KEY: text})
        except SafetensorError as error:  # a full disk, say
            raise OSError(f"cannot write {path}: {error}") from error


def read_tensors(
    path: str | Path, version: int, *, device: str = "cpu", verify: bool = True, allow_nan: bool = False
) -> TensorFile:
    """Read a file of one version of its header; a FileError says what is wrong with any other.

    Without `verify` the digest is not looked at, which saves the time of reading all bytes once more. A file
    of others, without a header of ours, is read as it is.
    """
    check_path(path)
    try:
        with safe_open(path, framework="pt", device=device) as file:
            text = (file.metadata() or {}).get(HEADER_KEY)
            header = None if text is None else _header(path, text, version)
            tensors: dict[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise FileError(f"{path} is not a whole safetensors file: {error}") from error
    if header is not None:
        wanted = header.pop("digest", None)
        if verify and wanted != _digest(header, tensors):
            raise FileError(
                f"{path} is not as it was written: its digest differs (verify=False reads it all the same)"
            )
    if not allow_nan:
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and bool(_plain(tensor).isnan().any()):
                raise FileError(f"{path}: {name!r} holds NaN (allow_nan=True reads it all the same)")
    return TensorFile(tensors, header)


def check_path(path: str | Path) -> None:
    """Raise a FileError unless this can be the name of a file."""
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise FileError(f"{path!r} is not a path")


def _header(path: str | Path, text: str, version: int) -> dict[str, Any]:
    try:
        header = as_table(parse_json(text))
    except RecordError as error:
        raise FileError(f"{path} has a header that understudy did not write: {error}") from error
    found = header.get("version")
    if type(found) is not int or found != version:
        raise FileError(f"{path} has version {str(found)[:20]}; this understudy reads version {version}")
    return header


def _digest(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Of the header, and of every tensor by its name, type, shape and bytes."""
    sha256 = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        sha256.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        sha256.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return f"sha256:{sha256.hexdigest()}"


def _plain(tensor: Tensor) -> Tensor:
    """As a type that can be looked at: numbers of eight bits cannot."""
    return tensor.float() if tensor.element_size() == 1 else tensor
