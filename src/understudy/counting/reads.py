"""Who reads a module's weight: attributes of the modules that are watched, while they are."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

_lock = threading.Lock()
_notes: dict[int, Callable[[], None]] = {}  # by the identity of a module
_plain = nn.Module.__getattr__


@contextlib.contextmanager
def noting_reads(notes: Mapping[nn.Module, Callable[[], None]]) -> Iterator[None]:
    """Call what is given for a module whenever its `weight`, a parameter, is read.

    The class of a module is left alone, for a network may look at it; and so nn.Module itself is asked,
    as long as any module is watched.
    """
    watched = {id(module): note for module, note in notes.items()}
    with _lock:
        _notes.update(watched)
        nn.Module.__getattr__ = _noting  # type: ignore[method-assign]
    try:
        yield
    finally:
        with _lock:
            for one in watched:
                del _notes[one]
            if not _notes:
                nn.Module.__getattr__ = _plain  # type: ignore[method-assign]


def _noting(module: nn.Module, name: str) -> Any:
    if name == "weight":
        note = _notes.get(id(module))
        if note is not None:
            note()
    return _plain(module, name)
