"""Counts as people write them: 17.6M, 0.53G, 4_350_000."""

from __future__ import annotations

import math
import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}


def parse_count(text: str | float) -> int:
    """`"17.6M"` → 17600000; a whole number is taken as it is."""
    if isinstance(text, bool):
        raise ValueError(f"{text!r} is not a count: write a whole number, or one such as 17.6M")
    if isinstance(text, int):
        count: float = text
    elif isinstance(text, float):
        if not math.isfinite(text) or text != int(text):
            raise ValueError(f"{text!r} is not a whole number (a share of the network is given by ratio=)")
        count = text
    else:
        match = re.fullmatch(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]?)\s*", str(text).lower())
        if match is None or match[2] not in _UNITS:
            raise ValueError(
                f"{text!r} is not a count: write a whole number, or one such as 600k, 17.6M, 0.53G"
            )
        number = float(match[1].replace("_", "").replace(",", "")) * _UNITS[match[2]]
        if not math.isfinite(number):
            raise ValueError(f"{text[:20]!r}… is not a count: it has {len(text)} characters")
        count = round(number)
    if count < 1:
        raise ValueError(f"{text!r} is not a count of at least 1")
    return int(count)


def parse_share(name: str, text: str | float) -> float:
    """`"30%"` and `"0.3"` → 0.3; a number is taken as it is. `name` is what an error calls it."""
    problem = f"{name} {text!r} is not a number such as 0.3 or 30%"
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(problem)
    try:
        if isinstance(text, str) and text.strip().endswith("%"):
            share = float(text.strip()[:-1]) / 100
        else:
            share = float(text)
    except (ValueError, OverflowError):
        raise ValueError(problem) from None
    if not math.isfinite(share):
        raise ValueError(problem)
    return share


def format_count(count: int | None) -> str:
    """36479194 → `36.48M`; an unknown count is `–`."""
    if count is None:
        return "–"
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(count) >= 0.9995 * size:
            scaled = count / size
            return f"{scaled:.{2 if abs(scaled) < 100 else 1}f}{unit}"
    return str(count)


def format_bytes(count: int) -> str:
    """70400000 → `70.4 MB`, in powers of ten."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def format_ms(time_ms: float) -> str:
    """16.94 → `16.9`, 1120.3 → `1,120`: three digits, never an exponent."""
    return f"{time_ms:.3g}" if time_ms < 999.5 else f"{time_ms:,.0f}"


def format_time(nanoseconds: float) -> str:
    """631882 → `632 µs`, 5300000 → `5.3 ms`, 12e9 → `12 s`."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if nanoseconds >= 0.9995 * size:
            scaled = nanoseconds / size
            return f"{scaled:.0f} {unit}" if scaled >= 99.95 else f"{scaled:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def format_share(part: int | None, whole: int | None) -> str:
    """Part of a whole in percent."""
    if part is None or not whole:
        return "–"
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 1 else f"{share:.2g} %"


def format_shape(kernel: tuple[int, ...], in_features: int, out_features: int, groups: int = 1) -> str:
    """`3×3 160 → 320`, `3×3 160 → 320 in 4 groups` or `512 → 10`."""
    window = "×".join(map(str, kernel)) + " " if kernel else ""
    return f"{window}{in_features} → {out_features}" + (f" in {groups} groups" if groups > 1 else "")
