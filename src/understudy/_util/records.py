"""Dataclasses as JSON and back: every value of exactly the type that its field says, or an error.

A field may be text, a whole number, a finite number, true or false, None, a Literal, another dataclass, a
tuple or a mapping of these, a union of some, or `Json`, which is anything that JSON can hold.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from .files import whole_file
from .nearest import hint

Json = Any  # whatever JSON can hold, its numbers finite
Record = TypeVar("Record")
ADDED = {"added": True}  # metadata of a field that files from before it lack: there it has its default
MOST_BYTES = 1 << 28  # of a file of ours
_DEEPEST = 32  # tables in tables
_LONGEST = 100_000  # characters of a text
_DIGITS = 20  # of a whole number
_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[\w.*:/ +-]{1,60}")
_NAMES = {str: "text", bool: "true or false", int: "a whole number", float: "a finite number"}


class InputError(ValueError):
    """Something from outside that is not what it should be, told on one line of a readable length."""

    def __init__(self, message: str) -> None:
        super().__init__(clipped(message))


class RecordError(InputError):
    """Content that is not the record it should be."""


class VersionError(RecordError):
    """A file of another format version."""


def to_plain(value: object) -> Any:
    """A record as JSON can hold it: dataclasses and mappings become dictionaries, tuples lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[Record], content: object, where: str = "") -> Record:
    """The inverse of `to_plain`: the whole record, or a RecordError with the path of what is wrong.

    No key may be missing, not even one whose field has a default, unless the field is `ADDED`; none may be
    unknown. What the dataclass itself refuses, with a ValueError, is told with its path too.
    """
    if not isinstance(content, Mapping):
        raise RecordError(f"{where or 'the record'} is {short(content)}, not a table")
    wanted = _types(typing.cast("Hashable", kind))
    unknown = [key for key in content if key not in wanted]
    if unknown:
        raise RecordError(f"{_key(where, str(unknown[0]))} is unknown{hint(str(unknown[0])[:60], wanted)}")
    missing = [key for key in wanted if key not in content and key not in _added(kind)]
    if missing:
        raise RecordError(f"{', '.join(_key(where, key) for key in missing)} {_are(missing)} missing")
    values = {
        key: _value(one, content[key], _key(where, key)) for key, one in wanted.items() if key in content
    }
    try:
        return kind(**values)
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"{where}: {error}" if where else str(error)) from error


def parse_json(text: str) -> Any:
    """What a JSON text holds: numbers finite, texts whole, nothing nested too deeply; or a RecordError.

    Whoever looks further at what it gives needs neither fear its depth nor what cannot be written again.
    """
    try:
        content = json.loads(text, parse_int=_whole, parse_float=_finite, parse_constant=_no_number)
    except RecordError:
        raise
    except RecursionError:
        raise RecordError(f"it is nested more than {_DEEPEST} deep") from None
    except ValueError as error:
        raise RecordError(f"it is not JSON: {error}") from error
    pending = [(content, 1)]
    while pending:
        value, depth = pending.pop()
        if depth > _DEEPEST:
            raise RecordError(f"it is nested more than {_DEEPEST} deep")
        if isinstance(value, dict):
            pending += [(one, depth + 1) for pair in value.items() for one in pair]
        elif isinstance(value, list):
            pending += [(one, depth + 1) for one in value]
        elif isinstance(value, str):
            _check_text(value)
    return content


def _check_text(text: str) -> None:
    if len(text) > _LONGEST:
        raise RecordError(f"it holds a text of {len(text):,} characters, more than {_LONGEST:,}")
    if _SURROGATE.search(text):
        raise RecordError(f"it holds {short(text)}, half of a character")


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise RecordError(f"it holds a whole number of {len(text):,} digits, more than {_DIGITS}")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise RecordError(f"it holds {text[:20]}, not a finite number")
    return float(text)


def _no_number(text: str) -> float:
    raise RecordError(f"it holds {text}, not a finite number")


def read_table(path: Path) -> dict[str, Any]:
    """The table that a JSON file holds, within the bounds of `parse_json`; a RecordError names the file."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise RecordError(f"it has {size:,} bytes, more than {MOST_BYTES:,}")
        return as_table(parse_json(path.read_text(encoding="utf-8")))
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: it is not JSON: {error}") from error


def as_table(content: object) -> dict[str, Any]:
    """Content that is a table, or a RecordError."""
    if not isinstance(content, dict):
        raise RecordError(f"it holds {short(content)}, not a table")
    return content


def read_record(kind: type[Record], path: Path, version: int) -> Record:
    """A record from a JSON file of one format version; a RecordError says what is wrong with any other."""
    content = read_table(path)
    found = content.pop("format", None)
    if type(found) is not int or found != version:
        raise VersionError(
            f"{path} has format {short(found)}, written by {_writer(content)}; "
            f"this version reads format {version}"
        )
    try:
        return from_plain(kind, content)
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from error


def write_record(path: Path, record: object, version: int) -> None:
    """Write a record with its format version, whole or not at all; its numbers must be finite."""
    text = json.dumps({"format": version, **to_plain(record)}, indent=1, allow_nan=False)
    with whole_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _writer(content: Mapping[str, Any]) -> str:
    return (
        f"understudy {_key('', str(content['understudy']))}" if "understudy" in content else "another version"
    )


@functools.cache
def _types(kind: Any) -> dict[str, Any]:
    """The type of each field."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _added(kind: Any) -> set[str]:
    """The fields that a file may lack."""
    return {field.name for field in dataclasses.fields(kind) if "added" in field.metadata}


def _value(wanted: Any, content: Any, where: str) -> Any:
    """A value of the wanted type, or a RecordError."""
    if wanted is Any:
        return _json(content, where)
    if dataclasses.is_dataclass(wanted):
        return from_plain(typing.cast("type[Any]", wanted), content, where)
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return _one_of(inner, content, where)
    if origin is Literal:
        if not any(content == one and type(content) is type(one) for one in inner):
            raise RecordError(f"{where} is {short(content)}, not one of {', '.join(map(str, inner))}")
        return content
    if origin is tuple:
        if not isinstance(content, list | tuple):
            raise RecordError(f"{where} is {short(content)}, not a list")
        if inner[-1] is not Ellipsis and len(content) != len(inner):
            raise RecordError(f"{where} holds {len(content)} values, not {len(inner)}")
        each = [inner[0]] * len(content) if inner[-1] is Ellipsis else inner
        return tuple(
            _value(one, item, f"{where}[{number}]")
            for number, (one, item) in enumerate(zip(each, content, strict=True))
        )
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(content, Mapping):
            raise RecordError(f"{where} is {short(content)}, not a table")
        return {str(key): _value(inner[1], item, _key(where, str(key))) for key, item in content.items()}
    return _plain(wanted, content, where)


def _plain(wanted: Any, content: Any, where: str) -> Any:
    """A value of a type that JSON has itself; a whole number is a number too, and neither is a truth."""
    if wanted is types.NoneType:
        if content is None:
            return None
        raise RecordError(f"{where} is {short(content)}, not null")
    if wanted is float and type(content) is int and abs(content) <= 2**53:
        return float(content)
    if type(content) is not wanted or (wanted is float and not math.isfinite(content)):
        raise RecordError(f"{where} is {short(content)}, not {_NAMES[wanted]}")
    return content


def _one_of(wanted: tuple[Any, ...], content: Any, where: str) -> Any:
    """A value of one type of a union; of several that do not fit, the last one tells why."""
    if content is None and types.NoneType in wanted:
        return None
    options = [one for one in wanted if one is not types.NoneType]
    if int in options and float in options and type(content) is int:
        return content
    for one in options[:-1]:
        try:
            return _value(one, content, where)
        except RecordError:
            continue
    return _value(options[-1], content, where)


def _json(content: Any, where: str) -> Any:
    """Anything that JSON holds, or a RecordError with the path inside it."""
    if isinstance(content, Mapping):
        return {str(key): _json(item, _key(where, str(key))) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return [_json(item, f"{where}[{number}]") for number, item in enumerate(content)]
    if content is None or type(content) in (str, bool, int):
        return content
    return _plain(float, content, where)


def _key(where: str, key: str) -> str:
    key = key if _PLAIN_KEY.fullmatch(key) else short(key)
    return f"{where}.{key}" if where else key


def _are(items: list[str]) -> str:
    return "is" if len(items) == 1 else "are"


def clipped(message: str) -> str:
    """A message on one line, cut where it becomes too long to read."""
    joined = " ".join(message.split())
    return joined if len(joined) <= 1000 else f"{joined[:999]}…"


def short(content: object) -> str:
    """What was got, in so few characters that it fits into a message."""
    text = repr(content[:60] if isinstance(content, str) else content)
    return text if len(text) <= 60 else f"{text[:59]}…"
