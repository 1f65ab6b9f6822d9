"""Archives from the network: whole and checked, or not there at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from .images import DataError

if TYPE_CHECKING:
    from rich.progress import Progress

_CHUNK = 1 << 18
_TIMEOUT_SECONDS = 60


def fetch(url: str, folder: Path, md5: str, *, top: str, progress: bool = True) -> Path:
    """Download a .tar.gz into `folder` and unpack it; `top` is its one top folder, which is returned.

    All happens in a scratch folder beside, and ends with a rename: a killed or failed download leaves nothing
    that could be taken for data, and two processes may do it at once.
    """
    unpacked = folder / top
    if unpacked.is_dir():
        return unpacked
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{top}.") as scratch:
        archive = Path(scratch) / "archive"
        download(url, archive, md5, progress=progress)
        unpack(archive, Path(scratch), top)
        try:
            (Path(scratch) / top).rename(unpacked)
        except OSError:
            if not unpacked.is_dir():  # else another process was quicker, with the same bytes
                raise
    return unpacked


def download(url: str, target: Path, md5: str, *, progress: bool = True) -> None:
    """Write what `url` holds to `target`, synced to disk; raise a DataError unless its MD5 is this."""
    # Not for security, where the transport answers, but it finds damage; it is what the authors publish.
    digest = hashlib.md5(usedforsecurity=False)
    received = 0
    try:
        with (
            urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response,
            target.open("wb") as file,
            _bar(progress) as bar,
        ):
            length = response.headers.get("Content-Length")
            expected = int(length) if length else None
            task = bar.add_task(url.rpartition("/")[2], total=expected)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                bar.update(task, completed=received)
            _sync(file)
    except urllib.error.HTTPError as error:
        error.close()
        raise DataError(f"{url} cannot be downloaded: {error.code} {error.reason}") from error
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise DataError(f"{url} cannot be downloaded: {error}") from error
    if expected is not None and received != expected:
        raise DataError(f"{url} broke off: {received:,} bytes came, expected {expected:,}")
    if digest.hexdigest() != md5:
        raise DataError(f"{url} is not what was published: MD5 {digest.hexdigest()}, expected {md5}")


def unpack(archive: Path, folder: Path, top: str) -> None:
    """Unpack the files and folders below `top`; raise a DataError if the archive holds anything else."""
    try:
        with tarfile.open(archive, "r:gz") as tar:
            members = tar.getmembers()
            for member in members:
                path = PurePosixPath(member.name)
                inside = path.parts[:1] == (top,) and ".." not in path.parts
                if not inside or not (member.isfile() or member.isdir()):
                    kind = "a file or folder" if member.isfile() or member.isdir() else "a link or device"
                    raise DataError(
                        f"refused to unpack: member {member.name!r} is {kind}; expected files below {top}/"
                    )
            for member in members:
                target = folder / member.name
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                source = tar.extractfile(member)
                assert source is not None  # it is a plain file
                target.parent.mkdir(parents=True, exist_ok=True)
                with source, target.open("wb") as file:
                    shutil.copyfileobj(source, file)
                    _sync(file)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"the archive of {top} cannot be unpacked: {error}") from error
    if not (folder / top).is_dir():
        raise DataError(f"the archive has no folder {top}/")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _bar(progress: bool) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not (progress and console.is_terminal)) as bar:
        yield bar
