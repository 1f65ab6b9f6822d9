"""Downloads from a server on this machine: whole and checked, or nothing is left behind."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cifar_files import write_cifar

from understudy.data import DataError, archive, load
from understudy.data.archive import fetch, unpack
from understudy.data.cifar import CIFAR10, CIFAR100, Cifar, load_cifar

quietly = partial(fetch, top="top", progress=False)


class Handler(BaseHTTPRequestHandler):
    """Serves what the test has put down; the paths say whether without its length, or its end."""

    def do_GET(self) -> None:
        body = FILES.get(self.path)
        REQUESTS.append(self.path)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        if not self.path.startswith("/unsized"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:-100] if self.path.startswith("/truncated") else body)

    def log_message(self, *arguments: object) -> None:
        """Keep the test output clean."""


FILES: dict[str, bytes] = {}
REQUESTS: list[str] = []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy between the test and its own server, and nothing served from an earlier test."""
    monkeypatch.setenv("no_proxy", "*")
    FILES.clear()
    REQUESTS.clear()


def tar(*members: tuple[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None) -> bytes:
    """A .tar.gz of files by name; `change` makes the last one into something else."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if change is not None and name == members[-1][0]:
                change(member)
            made.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def serve(path: str, content: bytes) -> str:
    FILES[path] = content
    return md5(content)


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("path", ["/good.tar.gz", "/unsized.tar.gz"])
def test_an_archive_is_unpacked_and_nothing_else_is_left(server: str, path: str, tmp_path: Path) -> None:
    digest = serve(path, tar(("top/one", b"1"), ("top/below/two", b"22")))
    folder = tmp_path / "made" / "as needed"
    assert quietly(server + path, folder, digest) == folder / "top"
    assert (folder / "top" / "one").read_bytes() == b"1"
    assert (folder / "top" / "below" / "two").read_bytes() == b"22"
    assert contents(folder) == ["top"]


def test_what_is_there_is_not_downloaded_again(server: str, tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    assert quietly(f"{server}/never", tmp_path, "0") == tmp_path / "top"
    assert REQUESTS == []


def test_a_wrong_checksum_is_refused_with_both_sums(server: str, tmp_path: Path) -> None:
    digest = serve("/bad.tar.gz", tar(("top/one", b"1")))
    with pytest.raises(DataError, match=f"is not what was published: MD5 {digest}, expected {'0' * 32}"):
        quietly(f"{server}/bad.tar.gz", tmp_path, "0" * 32)
    assert contents(tmp_path) == []


def test_a_body_that_breaks_off_is_refused_with_both_lengths(server: str, tmp_path: Path) -> None:
    body = tar(("top/one", bytes(range(256)) * 40))
    digest = serve("/truncated.tar.gz", body)
    message = rf"truncated.tar.gz broke off: {len(body) - 100:,} bytes came, expected {len(body):,}"
    with pytest.raises(DataError, match=message):
        quietly(f"{server}/truncated.tar.gz", tmp_path, digest)
    assert contents(tmp_path) == []


def test_a_missing_archive_is_named_with_the_servers_answer(server: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{server}/absent cannot be downloaded: 404 Not Found"):
        quietly(f"{server}/absent", tmp_path, "0")
    assert contents(tmp_path) == []


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as unused:
        url = f"http://127.0.0.1:{unused.server_port}/file"
    with pytest.raises(DataError, match=rf"{url} cannot be downloaded: .*refused"):
        quietly(url, tmp_path, "0")


def link_to(target: str, kind: bytes) -> Callable[[tarfile.TarInfo], None]:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, target, 0

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("top/../../evil", None),
        ("../evil", None),
        ("/evil", None),
        ("other/evil", None),
        ("top/link", link_to("/etc/passwd", tarfile.SYMTYPE)),
        ("top/link", link_to("top/one", tarfile.LNKTYPE)),
        ("top/device", link_to("", tarfile.CHRTYPE)),
        ("top/pipe", link_to("", tarfile.FIFOTYPE)),
    ],
)
def test_a_member_that_would_leave_its_folder_or_is_no_file_stops_it_all(
    server: str, name: str, change: Callable[[tarfile.TarInfo], None] | None, tmp_path: Path
) -> None:
    digest = serve("/evil.tar.gz", tar(("top/one", b"1"), (name, b"evil"), change=change))
    folder = tmp_path / "data"
    with pytest.raises(
        DataError, match=f"refused to unpack: member '{name}' is .*; expected files below top/"
    ):
        quietly(f"{server}/evil.tar.gz", folder, digest)
    assert contents(folder) == []
    assert contents(tmp_path) == ["data"]


def test_an_archive_that_is_none_or_broken_or_empty_is_refused(tmp_path: Path) -> None:
    whole = tar(("top/one", bytes(range(256)) * 40))
    for content in (b"not an archive", whole[:-60], whole[:20] + b"?" * 40 + whole[60:]):
        (tmp_path / "archive").write_bytes(content)
        with pytest.raises(DataError, match="the archive of top cannot be unpacked"):
            unpack(tmp_path / "archive", tmp_path, "top")
    (tmp_path / "archive").write_bytes(tar())
    with pytest.raises(DataError, match="the archive has no folder top/"):
        unpack(tmp_path / "archive", tmp_path / "empty", "top")


def test_a_disk_that_fills_leaves_nothing(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = serve("/good.tar.gz", tar(("top/one", b"1")))

    def full(_file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_sync", full)
    with pytest.raises(OSError, match="No space left on device"):
        quietly(f"{server}/good.tar.gz", tmp_path, digest)
    assert contents(tmp_path) == []


def test_two_downloads_at_once_end_with_one_whole_folder(server: str, tmp_path: Path) -> None:
    digest = serve("/good.tar.gz", tar(("top/one", bytes(99_999))))
    threads = [
        threading.Thread(target=quietly, args=(f"{server}/good.tar.gz", tmp_path, digest)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(tmp_path) == ["top"]
    assert (tmp_path / "top" / "one").stat().st_size == 99_999


def published(kind: Cifar, layout: str, folder: Path) -> Cifar:
    """Serve a small made-up CIFAR as if it had been published; the kind with its checksum."""
    top = write_cifar(kind, layout, folder)
    files = kind.layouts[layout]
    body = tar(*((f"{files.top}/{path.name}", path.read_bytes()) for path in sorted(top.iterdir())))
    digest = serve(f"/{files.archive}", body)
    return replace(kind, layouts=kind.layouts | {layout: replace(files, md5=digest)})


@pytest.mark.parametrize("layout", ["binary", "python"])
@pytest.mark.parametrize("kind", [CIFAR10, CIFAR100], ids=lambda kind: kind.name)
def test_cifar_is_downloaded_once_in_the_layout_asked_for(
    server: str, kind: Cifar, layout: str, tmp_path: Path
) -> None:
    ours = published(kind, layout, tmp_path / "origin")
    get = partial(load_cifar, ours, download=True, layout=layout, partial=True, progress=False)
    first = get(tmp_path / "data", base_url=f"{server}/")
    again = get(tmp_path / "data", base_url="http://127.0.0.1:1")
    assert (first.train_labels == again.train_labels).all()
    assert [f"/{kind.layouts[layout].archive}"] == REQUESTS
    assert contents(tmp_path / "data") == [kind.layouts[layout].top]


def test_cifar_with_another_checksum_than_the_published_one_is_refused(server: str, tmp_path: Path) -> None:
    published(CIFAR10, "binary", tmp_path / "origin")
    with pytest.raises(DataError, match="expected c32a1d4ab5d03f1284b67883e8d87530"):
        load("cifar10", tmp_path / "data", download=True, base_url=server, progress=False)
    assert contents(tmp_path / "data") == []


def test_a_bar_is_shown_on_a_terminal_and_only_there(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = serve("/good.tar.gz", tar(("top/one", b"1")))
    for forced, folder in (("0", "silent"), ("1", "shown")):
        monkeypatch.setenv("TTY_COMPATIBLE", forced)
        fetch(f"{server}/good.tar.gz", tmp_path / folder, digest, top="top")
        captured = capsys.readouterr()
        assert captured.out == ""
        assert ("good.tar.gz" in captured.err) is (folder == "shown")
