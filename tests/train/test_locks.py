"""Locks on files: those of POSIX, those of Windows, and where there are none."""

from __future__ import annotations

import errno
import subprocess
import sys
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


def test_a_run_and_a_plan_are_written_where_posix_modules_are_missing(tmp_path: Path) -> None:
    """In a process of its own, as on Windows: neither fcntl nor resource, and locks as msvcrt gives them."""
    code = """
import os, subprocess, sys, torch, types  # which tell systems apart by these very modules
for name in ("fcntl", "resource", "grp", "termios"):
    sys.modules[name] = None
held = set()
def locking(handle, mode, size):
    key = os.fstat(handle).st_ino
    if key in held:
        raise PermissionError(13, "held")
    held.add(key)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
from understudy._util import files
from understudy.train import Recipe, Run
from understudy.train.run import RunInUseError
import understudy.cli
from pathlib import Path
run = Run.open(Path(sys.argv[1]), Recipe())
try:
    Run.open(Path(sys.argv[1]), Recipe())
except RunInUseError:
    print("held")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (0, ["held"]), done.stderr
    assert (tmp_path / "run" / "config.json").is_file()


@pytest.mark.parametrize("failures", [0, 2, 99])
def test_windows_replaces_a_file_once_nobody_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    left = failures
    replace = Path.replace

    def busy(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left >= 0:
            raise PermissionError(errno.EACCES, "somebody reads it")
        return replace(path, target)

    target = tmp_path / "file"
    target.write_text("old")
    (tmp_path / "new").write_text("new")
    monkeypatch.setattr(Path, "replace", busy)
    monkeypatch.setattr(files, "os", SimpleNamespace(name="nt"))
    monkeypatch.setattr(files, "time", SimpleNamespace(sleep=lambda _: None))
    if failures > 50:
        with pytest.raises(PermissionError, match="somebody reads it"):
            files._replace(tmp_path / "new", target)
    else:
        files._replace(tmp_path / "new", target)
    assert target.read_text() == ("old" if failures > 50 else "new")
