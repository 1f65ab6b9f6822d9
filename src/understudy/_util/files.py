"""Files that appear whole or not at all, and locks on them."""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


def _optional(module: str) -> Any:
    """A module of one platform, or None on the others."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


_PAUSES = (0.01, 0.03, 0.1, 0.3, 1.0)  # seconds between attempts
_fcntl, _msvcrt = _optional("fcntl"), _optional("msvcrt")  # POSIX; Windows


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A temporary path to write to; it takes its place only when the block ends well and the disk has it."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {target.parent} to write {target.name} to")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("r+b") as written:  # Windows flushes only what may be written
            os.fsync(written.fileno())
        temporary.chmod(0o666 & ~_umask())
        _replace(temporary, target)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(temporary: Path, target: Path) -> None:
    """Put a file in another's place; Windows refuses while somebody reads that, so it is tried again."""
    for pause in _PAUSES if os.name == "nt" else ():
        try:
            temporary.replace(target)
        except PermissionError:
            time.sleep(pause)
        else:
            return
    temporary.replace(target)


def _umask() -> int:
    """The permissions that new files are denied; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def lock(stream: TextIO, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; False where another process holds it.

    Windows knows no shared locks: there `shared` asks for the file alone, too. Where locks do not work at
    all, as on some network disks, the OSError says so.
    """
    try:
        if _fcntl is not None:
            _fcntl.flock(stream, (_fcntl.LOCK_SH if shared else _fcntl.LOCK_EX) | _fcntl.LOCK_NB)
        elif _msvcrt is not None:
            stream.seek(0)
            _msvcrt.locking(stream.fileno(), _msvcrt.LK_NBLCK, 1)
        else:
            raise OSError(errno.ENOSYS, "this Python has neither fcntl nor msvcrt")
    except BlockingIOError:
        return False
    except OSError as error:
        if _fcntl is None and error.errno in (errno.EACCES, errno.EDEADLK):  # how msvcrt says "held"
            return False
        raise OSError(error.errno, f"{stream.name} cannot be locked: {error.strerror}") from error
    return True


def digest(path: Path) -> str:
    """The SHA-256 of a file's content."""
    sha256 = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            sha256.update(block)
    return f"sha256:{sha256.hexdigest()}"
