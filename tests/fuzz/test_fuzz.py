"""Damaged and forged files of every kind are refused in one line, or change nothing; `make fuzz` for more."""

from __future__ import annotations

from pathlib import Path

import pytest
from file_kinds import kinds
from fuzzing import MEGABYTES, fuzz, peak_megabytes, through_the_command

COUNT, COMMANDS, SEED = 15, 1, 7


def test_no_damaged_file_is_mishandled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    before = peak_megabytes()
    for kind in kinds(tmp_path):
        counts, problems = fuzz(kind, COUNT, SEED)
        assert problems == []
        assert sum(counts.values()) == COUNT
        assert counts["refused"] or kind.name == "metrics of a run", "damage is noticed"
        if kind.command:
            assert through_the_command(kind, COMMANDS, SEED) == []
    assert peak_megabytes() - before < MEGABYTES
