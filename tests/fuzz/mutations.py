"""Damage: a sound file, changed at random places in ways that files are damaged or forged in."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import safetensors.torch
import torch

from understudy.students.tensors import HEADER_KEY, header_text

Damage = Callable[[bytes, random.Random], bytes]
_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**19, 0.5, -1e308, 1e-300, "", "x", "../../evil", "os:abort",
    "\x00", "\ud800", "=1+1", "a" * 10_000, [], {}, [[]], {"a": 1}, [1, 2, 3], "low_rank", "finished",
)  # fmt: skip
_TOKENS = (
    "NaN", "Infinity", "-Infinity", "1e999", "1" * 5000, "-0", "[" * 50_000, '{"a":' * 50_000, "\ufeff",
    '"\\ud800"', "\x00", "nul",
)  # fmt: skip


def flipped(data: bytes, dice: random.Random) -> bytes:
    """A bit, or a few."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 8))):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def cut(data: bytes, dice: random.Random) -> bytes:
    """The beginning, the end, or all but a piece in the midst."""
    first, second = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return dice.choice((data[:first], data[second:], data[:first] + data[second:]))


def doubled(data: bytes, dice: random.Random) -> bytes:
    """A piece twice, or something that does not belong there."""
    first, second = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    piece = dice.choice((data[first:second], bytes(64), b"\xff\xfe\x00", b"[" * 5000))
    return data[:first] + piece + data[first:]


def edited(content: Any, dice: random.Random) -> Any:
    """JSON with one value removed, retyped, absurd, repeated, or under another name."""
    places: list[tuple[Any, Any]] = []
    pending = [content]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        places += [(node, key) for key in keys]
        pending += [node[key] for key in keys]
    if not places:
        return dice.choice(_ODD)
    node, key = dice.choice(places)
    way = dice.randrange(6)
    if way == 0:
        del node[key]
    elif way == 1 and isinstance(node, dict):
        node[dice.choice(("colour", "", "a.b", "\n", "k" * 3000))] = node[key]
    elif way == 2 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
        node[key] = dice.choice(
            (node[key] + 1, -node[key], node[key] * 10**6, str(node[key]), float(node[key]))
        )
    elif way == 3 and isinstance(node, list):
        node += [node[key]] * dice.choice((1, 2000))
    elif way == 4:
        deep: Any = node[key]
        for _ in range(dice.choice((3, 40, 200))):
            deep = [deep] if dice.random() < 0.5 else {"a": deep}
        node[key] = deep
    else:
        node[key] = dice.choice(_ODD)
    return content


def with_token(text: str, dice: random.Random) -> str:
    """JSON with something that is none in the place of a number or a word."""
    places = [place for place, letter in enumerate(text) if letter in ":[,"]
    place = dice.choice(places) + 1 if places else 0
    end = next((at for at in range(place, len(text)) if text[at] in ",]}\n"), len(text))
    return text[:place] + dice.choice(_TOKENS) + text[end:]


def of_json(data: bytes, dice: random.Random) -> bytes:
    """A change of the text, or of what it holds."""
    if dice.random() < 0.2:
        return with_token(data.decode(), dice).encode("utf-8", "surrogatepass")
    return json.dumps(edited(json.loads(data), dice)).encode()


def of_lines(data: bytes, dice: random.Random) -> bytes:
    """A change of one of several lines of JSON."""
    lines = data.splitlines()
    at = dice.randrange(len(lines))
    lines[at] = of_json(lines[at], dice)
    return b"\n".join(lines) + b"\n"


def of_toml(data: bytes, dice: random.Random) -> bytes:
    """A line gone, or with another value."""
    lines = data.decode().splitlines()
    at = dice.randrange(len(lines))
    key, equals, _ = lines[at].partition("=")
    odd = (
        "nan", "inf", "-1", "1" * 400, "1e999", "true", '""', '"../../evil"', '"os:nothing"', "[]", "{}",
        "[[1]]",
        "2020-01-01", "[" * 3000, f'"{"a" * 10_000}"', '"\\u0000"', "{ a = 1 }", "0.5", '"wrn_99999999_1"',
    )  # fmt: skip
    lines[at] = f"{key}= {dice.choice(odd)}" if equals and dice.random() < 0.8 else ""
    if dice.random() < 0.2:
        lines.insert(at, f"{dice.choice(('colour', 'epochs', '[settings]', 'x.y'))} = {dice.choice(odd)}")
    return "\n".join(lines).encode()


def of_tensors(data: bytes, dice: random.Random) -> bytes:
    """A change of the header of a safetensors file, of ours within it, or of its length."""
    (length,) = struct.unpack("<Q", data[:8])
    head, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    way = dice.random()
    if way < 0.1:
        return struct.pack("<Q", dice.choice((0, 1, length - 1, length + 8, 2**40, 2**63))) + data[8:]
    if way < 0.7 and "__metadata__" in head:
        ours = of_json(head["__metadata__"]["understudy"].encode(), dice).decode("utf-8", "replace")
        head["__metadata__"]["understudy"] = ours
    else:
        head = edited(head, dice)
    text = json.dumps(head).encode("utf-8", "replace")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + rest


def forged(data: bytes, dice: random.Random) -> bytes:
    """A file of ours with another header or another tensor, and a digest that says it was always so."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][HEADER_KEY])
    tensors = safetensors.torch.load(data)
    del header["digest"]
    if dice.random() < 0.8:
        header = edited(header, dice)
    else:
        name = dice.choice(sorted(tensors))
        tensor = tensors.pop(name)
        tensors |= dice.choice(
            (
                {}, {f"{name}x": tensor}, {name: tensor[..., None]}, {name: tensor.reshape(-1)[:1].clone()},
                {name: tensor.double()}, {name: tensor.to(torch.int16)}, {name: torch.full_like(tensor, 99)},
            )
        )  # fmt: skip
    text = header_text(header, tensors) if isinstance(header, dict) else json.dumps(header)
    written: bytes = safetensors.torch.save(tensors, metadata={HEADER_KEY: text})
    return written


def damaged(data: bytes, own: Damage, dice: random.Random) -> bytes:
    """The file with one change, mostly of the kind that such a file suffers by."""
    ways: list[Damage] = [own] if own is forged else [own, own, own, own, flipped, cut, doubled]
    return dice.choice(ways)(data, dice)
