"""Functions and classes by where they are: `package.module:name`, or `path/to/file.py:name`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from .nearest import hint
from .records import InputError

_LIBRARY = re.compile(r"(timm|torchvision|transformers):[A-Za-z0-9_./-]+")


class FactoryError(ValueError):
    """There is nothing to call at this place, or it cannot be called so."""


class TrustError(InputError):
    """A file names a function that nobody has asked to be called."""


def check_trust(
    source: object, names: Mapping[str, str], *, trust: bool, named: Collection[str] = ()
) -> None:
    """Raise a TrustError, which says what would be called, where a file names a function.

    `names` are those that the file `source` gives, by what they are of. Names of this package and of the
    libraries that it knows call nothing else; `named` are those that the user has given, too.
    """
    for what, name in names.items():
        if ":" in name and not trust and name not in named and not _LIBRARY.fullmatch(name):
            raise TrustError(
                f"{source} names {name!r} as its {what}, which would be called: --trust (trust=True) "
                "allows it, if you know who wrote that"
            )


def call_factory(place: str, **options: Any) -> Any:
    """What the function or class at a place gives; a FactoryError says what is wrong with the place.

    An error from within the function is its own.
    """
    where, _, name = place.rpartition(":")
    module = _load_file(Path(where), place) if where.endswith(".py") else _load_module(where, place)
    factory: Callable[..., Any] | None = vars(module).get(name)
    if not callable(factory):
        problem = "is no function or class" if name in vars(module) else "does not exist"
        raise FactoryError(f"{place} {problem}{hint(name, vars(module))}")
    try:
        return factory(**options)
    except TypeError as error:
        raise FactoryError(f"{place} cannot be called: {error}") from error


def _load_module(name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ModuleNotFoundError, ValueError, TypeError) as error:  # absent, empty, relative
        raise FactoryError(f"no module {name!r} for {place!r} ({error})") from error


def _load_file(path: Path, place: str) -> ModuleType:
    """A file as a module, loaded once; it may import what lies beside it."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise FactoryError(f"no file {path} for {place!r}")
    name = f"understudy_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:10]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FactoryError(f"{path} cannot be loaded as a Python module")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ModuleNotFoundError | SyntaxError):
            raise FactoryError(f"{path} cannot be imported: {error}") from error
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module
