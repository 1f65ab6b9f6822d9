"""Locks on files: those of POSIX, those of Windows, and where there are none."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from understudy._util import files
from understudy.train import Recipe, Run
from understudy.train.run import RunInUseError


def test_a_run_is_held_by_one_process_and_let_go(tmp_path: Path) -> None:
    run = Run.open(tmp_path / "run", Recipe())
    assert run.is_in_use()
    with pytest.raises(RunInUseError, match="in use by another process"):
        Run.open(tmp_path / "run", Recipe())
    run.close()
    assert not run.is_in_use()
    Run.open(tmp_path / "run", Recipe()).close()


@pytest.mark.parametrize("held", [errno.EACCES, errno.EDEADLK, errno.EIO, None])
def test_windows_locks_are_used_where_those_of_posix_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int | None
) -> None:
    asked = []

    def locking(handle: int, mode: int, size: int) -> None:
        asked.append((handle, mode, size))
        if held is not None:
            raise OSError(held, "held")

    monkeypatch.setattr(files, "_fcntl", None)
    monkeypatch.setattr(files, "_msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    with (tmp_path / "lock").open("w") as stream:
        if held == errno.EIO:
            with pytest.raises(OSError, match="cannot be locked: held"):
                files.lock(stream)
        else:
            assert files.lock(stream) == (held is None)
        assert asked == [(stream.fileno(), 2, 1)]


def test_where_nothing_can_lock_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert files._optional("no_such_module") is None
    monkeypatch.setattr(files, "_fcntl", None)
    monkeypatch.setattr(files, "_msvcrt", None)
    with pytest.raises(OSError, match="cannot be locked: this Python has neither fcntl nor msvcrt"):
        Run.open(tmp_path / "run", Recipe())
