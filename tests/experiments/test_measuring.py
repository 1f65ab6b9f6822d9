"""Timing in turns, and where a result comes from: one place for sweeps and benchmarks."""

from __future__ import annotations

import subprocess

import pytest
import torch

from understudy._util import provenance
from understudy._util.provenance import this_machine
from understudy._util.timing import Timing, time_in_turns


class Clock:
    """Time that passes only when something takes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def taking(self, log: list[str], name: str, *seconds: float) -> object:
        left = iter(seconds)

        def call() -> None:
            log.append(name)
            self.now += next(left)

        return call


def test_calls_take_turns_and_the_first_of_a_turn_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log = Clock(monkeypatch), list[str]()
    calls = {
        "a": clock.taking(log, "a", 9, 1, 3, 2, 9, 2, 2, 2),
        "b": clock.taking(log, "b", 9, 4, 6, 5, 9, 5, 5, 5),
    }
    taken = time_in_turns(calls, rounds=2, wait=lambda: log.append("|"))  # type: ignore[arg-type]
    assert taken == {"a": Timing(1, 2, 6, 0.0), "b": Timing(4, 5, 6, 0.0)}
    assert "".join(log) == "a|a||a||a|b|b||b||b|" * 2


def test_no_round_begins_after_the_time_is_over_but_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    taken = time_in_turns({"a": clock.taking([], "a", 1, 5, 5, 5)}, rounds=3, seconds=2)  # type: ignore[dict-item]
    assert taken == {"a": Timing(5, 5, 3)}
    with pytest.raises(ValueError, match="0 rounds: at least 1"):
        time_in_turns({}, rounds=0)


def test_a_machine_is_told_with_its_threads_and_a_package_outside_its_repository_has_no_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = this_machine()
    assert (machine.torch, machine.threads) == (torch.__version__, torch.get_num_threads())
    assert f"torch {torch.__version__}" in str(machine)

    def no_git(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr("subprocess.run", no_git)
    assert provenance.commit.__wrapped__() is None
