"""A teacher answers once: what it says to every batch, in float16 on disk, for all runs that ask the same.

Batches and augmentation follow from (seed, epoch, step), so the students of a grid with one seed ask one
teacher the same questions. FOLDER/QUESTION/epoch-E-part-P.safetensors holds its answers to some batches in
turn; the question is a digest of all that decides them. One process writes a part, which appears whole or not
at all; the others read it, or ask the teacher themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from understudy._util.files import lock
from understudy._util.quantities import format_bytes
from understudy._util.records import RecordError, from_plain, to_plain
from understudy.data import Batches, Sampler
from understudy.students.tensors import FileError, read_tensors, write_tensors

_KIND, _VERSION = "answers", 1
_IMAGES = 8192  # of a part, at least one batch: small enough to hold, large enough to read at once
_SPARED = 10**9  # bytes of the disk that are left to others


@dataclasses.dataclass(frozen=True)
class Keep:
    """Where answers are kept, and how many bytes at most; a part for each process may go beyond it."""

    folder: Path
    limit: int


@dataclasses.dataclass(frozen=True)
class _Header:
    """What a part says beside its tensors."""

    kind: str
    version: int
    question: str
    epoch: int
    part: int


def question(batches: Batches, asked: Mapping[str, Any]) -> str:
    """A digest of what a teacher is asked: every batch of every epoch, and whatever else `asked` says."""
    sampler = dataclasses.asdict(batches.sampler)
    augment = dataclasses.asdict(batches.augment)
    decides = {**asked, "sampler": sampler, "augment": augment, "mean": batches.mean, "std": batches.std}
    images = batches.images.cpu().contiguous()
    sha256 = hashlib.sha256(json.dumps([_VERSION, decides, images.shape], sort_keys=True).encode())
    sha256.update(images.reshape(-1).numpy().data)
    return sha256.hexdigest()[:32]


class Answers:
    """The answers to one question, `count` tensors for each batch, whose first dimension is the image.

    All are rounded to float16, those that come from the teacher just now as well: whoever asked first, every
    run sees the same numbers.
    """

    def __init__(self, keep: Keep, question: str, sampler: Sampler, count: int) -> None:
        self.keep, self.question, self.sampler, self.count = keep, question, sampler, count
        self.folder = keep.folder / question
        self.steps = max(1, _IMAGES // sampler.batch_size)  # of a part
        self._open: tuple[int, int] | None = None  # epoch and part
        self._found: tuple[Tensor, ...] | None = None  # of the part that is open
        self._collected: list[tuple[Tensor, ...]] | None = None  # to be written at its end
        self._lock: TextIO | None = None
        self._problems: list[str] = []

    def at(self, epoch: int, step: int, ask: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The answers to a batch, float32: those that are kept, or what `ask` gives."""
        part, place = divmod(step, self.steps)
        if self._open != (epoch, part):
            self._turn_to(epoch, part, first=place == 0)
        if self._found is not None:
            first = place * self.sampler.batch_size
            rows = slice(first, first + self.sampler.size(step))
            return tuple(tensor[rows].float() for tensor in self._found)
        answer = ask()
        rounded = tuple(tensor.half() for tensor in answer)
        if not all(bool(tensor.isfinite().all()) for tensor in rounded):
            self._let_go()  # float16 does not hold them, for any run
            return answer
        if self._collected is not None and len(self._collected) == place:
            self._collected.append(tuple(tensor.cpu() for tensor in rounded))
            if place == self.steps - 1 or step == self.sampler.steps - 1:
                self._write(epoch, part)
        return tuple(tensor.float() for tensor in rounded)

    def told(self) -> list[str]:
        """The problems since the last call: none of them changes what a run sees."""
        problems, self._problems = self._problems, []
        return problems

    def close(self) -> None:
        """Let go of what is half done."""
        self._let_go()
        self._open = self._found = None

    def _path(self, epoch: int, part: int) -> Path:
        return self.folder / f"epoch-{epoch}-part-{part}.safetensors"

    def _turn_to(self, epoch: int, part: int, *, first: bool) -> None:
        """Read a part, or begin to collect it where nobody else does."""
        self.close()
        self._open = (epoch, part)
        path = self._path(epoch, part)
        if path.exists():
            try:
                self._found = self._read(path, epoch, part)
                return
            except (FileError, RecordError, OSError) as error:
                self._problems.append(f"{path.name} is refused ({error})")
        if first and self._is_room(0):
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = path.with_suffix(".lock").open("w")
            # Where locks do not work, two may write the same: it is the same, and each file is whole.
            with contextlib.suppress(OSError):
                if not lock(self._lock):
                    self._lock.close()
                    self._lock = None
                    return
            self._collected = []

    def _read(self, path: Path, epoch: int, part: int) -> tuple[Tensor, ...]:
        file = read_tensors(path, _VERSION)
        if from_plain(_Header, file.header or {}) != self._header(epoch, part):
            raise FileError("it answers another question")
        steps = range(part * self.steps, min((part + 1) * self.steps, self.sampler.steps))
        images = sum(self.sampler.size(step) for step in steps)
        found = tuple(file.tensors[name] for name in sorted(file.tensors))
        if len(found) != self.count or any(len(one) != images or one.dtype != torch.float16 for one in found):
            raise FileError(f"it does not hold {self.count} answers to each of {images} images")
        return found

    def _write(self, epoch: int, part: int) -> None:
        assert self._collected is not None
        columns = [torch.cat(column) for column in zip(*self._collected, strict=True)]
        size = sum(2 * column.numel() for column in columns)
        if self._is_room(size):
            tensors = {f"{number:03}": column for number, column in enumerate(columns)}
            try:
                write_tensors(self._path(epoch, part), tensors, to_plain(self._header(epoch, part)))
            except OSError as error:  # a full disk, say: the next run asks again
                self._problems.append(f"{format_bytes(size)} cannot be kept ({error})")
        self._let_go()

    def _header(self, epoch: int, part: int) -> _Header:
        return _Header(_KIND, _VERSION, self.question, epoch, part)

    def _is_room(self, size: int) -> bool:
        """Whether so many bytes more are within the limit, and the disk has enough for others too."""
        folder = self.keep.folder
        folder.mkdir(parents=True, exist_ok=True)
        used = 0
        for path in folder.glob("*/*.safetensors"):
            with contextlib.suppress(FileNotFoundError):  # another has just replaced it
                used += path.stat().st_size
        return used + size < self.keep.limit and shutil.disk_usage(folder).free - size > _SPARED

    def _let_go(self) -> None:
        self._collected = None
        if self._lock is not None:
            self._lock.close()
            with contextlib.suppress(OSError):  # another has it open, where that matters
                Path(self._lock.name).unlink()
            self._lock = None
