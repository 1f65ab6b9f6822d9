"""The TOML files that come with the package, recipes and grids, and others of the same kind."""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .nearest import hint
from .records import RecordError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from importlib.abc import Traversable

MOST_BYTES = 1 << 22  # of a file that people write
Kind = Literal["recipe", "grid"]
_FOLDERS: dict[Kind, str] = {"recipe": "train/recipes", "grid": "experiments/grids"}


def shipped_names(kind: Kind) -> list[str]:
    """The files of a kind that come with the package."""
    return sorted(
        item.name.removesuffix(".toml") for item in _folder(kind).iterdir() if item.name.endswith(".toml")
    )


def read_toml(kind: Kind, name: str | Path) -> dict[str, Any]:
    """A shipped file by name, or any TOML file by path; a ValueError names the nearest, or what is wrong."""
    path = Path(name)
    names = shipped_names(kind)
    if str(name) in names:
        text = _folder(kind).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif path.suffix == ".toml" and path.is_file():
        if path.stat().st_size > MOST_BYTES:
            raise RecordError(f"{kind} {name}: it has more than {MOST_BYTES:,} bytes")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise RecordError(f"{kind} {name}: {error}") from error
    else:
        raise ValueError(
            f"no {kind} {str(name)!r} among {', '.join(names)}, nor such a file{hint(str(name), names)}"
        )
    try:
        return dict(tomllib.loads(text))
    except RecursionError:
        raise RecordError(f"{kind} {name}: it is nested too deeply") from None
    except ValueError as error:
        raise RecordError(f"{kind} {name}: {' '.join(str(error).split())}") from error


def _folder(kind: Kind) -> Traversable:
    return resources.files("understudy").joinpath(_FOLDERS[kind])
