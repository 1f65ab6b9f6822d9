"""Reads the pickles of the CIFAR Python layout without running what a pickle may ask to run.

A pickle is a program. This reader lets it build dicts, lists, tuples, numbers, bytes and str, and the one
kind of array these files hold. The numpy names that occur in them stand for inert records here, any other
name is refused, and numpy itself is never called by the pickle.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .images import DataError


class _Record:
    """Keeps the arguments and the state a pickle gives to what it believes is numpy."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Array(_Record):
    """Stands for numpy.ndarray and for the function that makes one empty."""


class _Dtype(_Record):
    """Stands for numpy.dtype."""


_KNOWN: dict[tuple[str, str], type[_Record]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Record]:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file holds")
        return _KNOWN[module, name]


def read_pickle(path: Path) -> dict[str, Any]:
    """The dict in a file, its keys as str; arrays are uint8."""
    with path.open("rb") as file:
        try:
            # The files are of Python 2: their strings are bytes.
            found = _Unpickler(file, encoding="bytes").load()
        except Exception as error:  # a damaged pickle can raise nearly anything
            raise DataError(f"{path} is not a CIFAR pickle: {error or type(error).__name__}") from error
    if not isinstance(found, dict):
        raise DataError(f"{path} holds a {type(found).__name__}, expected a dict")
    return {_text(path, key): _array(path, value) for key, value in found.items()}


def _text(path: Path, key: object) -> str:
    if isinstance(key, bytes):
        return key.decode("ascii", "replace")
    if isinstance(key, str):
        return key
    raise DataError(f"{path} has a {type(key).__name__} for a key, expected text")


def _array(path: Path, value: object) -> object:
    """A uint8 array for a record of one; any other value as it is."""
    if not isinstance(value, _Record):
        return value
    match value.state:
        case (_, tuple(shape), _Dtype(arguments=(b"u1" | "u1", *_)), fortran, bytes(raw)):
            try:
                flat: NDArray[np.uint8] = np.frombuffer(raw, dtype=np.uint8)
                return flat.reshape(shape, order="F" if fortran else "C")
            except (ValueError, TypeError) as error:
                raise DataError(f"{path} holds a damaged array: {error}") from error
    raise DataError(f"{path} holds an array that is not of uint8")
