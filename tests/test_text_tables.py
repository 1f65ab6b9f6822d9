"""Tables on a narrow terminal: columns leave, numbers are never cut."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from understudy._util.text_tables import table

NAMES = ("parameters", "mult-adds", "bytes", "latency", "accuracy %")
NUMBERS = st.lists(st.integers(0, 10**9).map("{:,}".format), min_size=len(NAMES), max_size=len(NAMES))


@given(st.lists(NUMBERS, min_size=1, max_size=3), st.integers(24, 120), st.sampled_from([(), ("bytes",)]))
def test_a_number_is_shown_whole_or_its_column_is_named_as_gone(
    rows: list[list[str]], width: int, yielding: tuple[str, ...]
) -> None:
    from rich.console import Console

    made = table(
        ["student", *(f">{name}" for name in NAMES), "note"],
        [[f"s{place}", *row, "as it is, in some words"] for place, row in enumerate(rows)],
        yielding=yielding,
    )
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(made)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    told = " ".join(captured.get().split())
    gone = re.search(r"no room for: (.*)", told)
    names = set(gone[1].split(", ")) if gone else set()
    for name, *numbers in zip(NAMES, *rows, strict=True):
        if name in names:
            continue
        shown = [re.search(rf"(?<![\d,]){re.escape(number)}(?![\d,])", told) for number in numbers]
        assert all(shown) or (name in yielding and not any(name in line for line in lines))
    if yielding and names:
        assert not any("bytes" in line for line in lines)  # what yields goes first
