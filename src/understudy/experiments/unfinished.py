"""The folder of a compression while it is made: beside the one that it becomes, whole or not at all.

It is called as the folder with `.part` after it, appears with the first student, and takes the folder's place
at the end. One that was killed is gone on with by whoever asks for the same.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from torch import nn

from understudy._util.files import lock
from understudy._util.records import Json, RecordError, read_record, write_record
from understudy.compressions import FILE, Student
from understudy.planning.plan import Plan
from understudy.students.file import load, save

from .tradeoff import Made

STUDENT, PLAN = "student.safetensors", "plan.json"
_NEW = ".student.safetensors"  # until its record is written
_ASKED, _RECORD, _RUN, _LOCK = "asked.json", "student.json", "recovery", ".lock"
_FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Asked:
    """All that decides what a compression gives."""

    network: str
    weights: str  # the digest of a file
    data: str
    transforms: tuple[str, ...]
    budgets: tuple[str, ...]
    epochs: int  # of recovery
    settings: Mapping[str, Json]


class Unfinished:
    """What is there so far of a compression into the folder `out`.

    A ValueError where something else is there already: `force` replaces what another compression left.
    """

    def __init__(self, out: Path, asked: Asked, *, force: bool = False) -> None:
        self.out, self.asked, self.force = out, asked, force
        self.folder = out.with_name(f"{out.name}.part")
        self._lock: TextIO | None = None
        self._is_settled = False
        if not out.parent.is_dir():
            raise FileNotFoundError(f"no folder {out.parent} to make {out.name} in")
        if out.exists() and not out.is_dir():
            raise ValueError(f"{out} is a file: choose another --out")
        held = list(out.iterdir()) if out.is_dir() else []
        if held and not (force and (out / FILE).is_file()):
            way = f"--force replaces only what holds {FILE}" if force else "or --force replaces it"
            raise ValueError(f"{out} is not empty: choose another --out; {way}")
        self.is_resumed = self.folder.exists() and self._is_ours()

    def _is_ours(self) -> bool:
        """Whether what was left is of the same compression; what is of another is refused, or dropped."""
        try:
            found = read_record(Asked, self.folder / _ASKED, _FORMAT)
            if found == self.asked:
                return True
            before, after = dataclasses.asdict(found), dataclasses.asdict(self.asked)
            what = ", ".join(key for key in before if before[key] != after[key])
            reason = f"with another {what}"
        except (OSError, RecordError) as error:
            reason = f"({error})"
        if not self.force:
            raise ValueError(
                f"{self.folder} is left of another compression {reason}: delete it, choose another --out, or "
                "--force drops it"
            )
        shutil.rmtree(self.folder)
        return False

    def begin(self) -> None:
        """Make the folder, and take it."""
        if self._lock is not None:
            return
        self.folder.mkdir(exist_ok=True)
        self._lock = (self.folder / _LOCK).open("w")
        if not lock(self._lock):
            self.close()
            raise ValueError(f"{self.folder} is in use by another process")
        write_record(self.folder / _ASKED, self.asked, _FORMAT)

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def drop_if_empty(self) -> None:
        """Leave nothing where no student was made."""
        self.close()
        if self._is_settled:  # all of them were, and only the last step failed
            return
        if self.folder.is_dir() and not any(self.folder.glob(f"*/{_RECORD}")):
            shutil.rmtree(self.folder)

    # ---- students --------------------------------------------------------------------------------------

    def run_folder(self, name: str) -> Path:
        """Where a student is trained."""
        return self.folder / name / _RUN

    def keep(self, made: Made) -> None:
        """Write a student; it is there once its record is, until when one from before recovery stays."""
        self.begin()
        folder = self.folder / made.record.name
        folder.mkdir(exist_ok=True)
        save(made.network, folder / _NEW)
        made.plan.save(folder / PLAN)
        write_record(folder / _RECORD, made.record, _FORMAT)
        (folder / _NEW).replace(folder / STUDENT)
        if made.record.recovery is not None:
            shutil.rmtree(folder / _RUN, ignore_errors=True)

    def kept(self, name: str) -> Student | None:
        """What is known of a student that was made before."""
        path = self.folder / name / _RECORD
        return read_record(Student, path, _FORMAT) if self.is_resumed and path.is_file() else None

    def made(self, name: str, model: nn.Module) -> Made:
        """A student that was made before, as it was."""
        record = self.kept(name)
        assert record is not None
        folder = self.folder / name
        if (folder / _NEW).is_file() and (record.recovery is not None or not (folder / STUDENT).is_file()):
            (folder / _NEW).replace(folder / STUDENT)  # killed right after its record was written
        return Made(load(folder / STUDENT, model).eval(), Plan.load(folder / PLAN), record)

    # ---- the end ---------------------------------------------------------------------------------------

    def settle(self, *, single: str = "") -> None:
        """Clear what only going on needs; a single student's files go to the top."""
        self._is_settled = True
        for name in (_ASKED, *(path.name for path in self.folder.glob(".*") if path.name != _LOCK)):
            (self.folder / name).unlink(missing_ok=True)
        for path in [*self.folder.glob("*/.*"), *self.folder.glob(f"*/{_RECORD}")]:
            path.unlink()
        for path in self.folder.glob(f"*/{_RUN}"):  # of a recovery that diverged
            shutil.rmtree(path)
        if single:
            for path in (self.folder / single).iterdir():
                path.replace(self.folder / path.name)
            (self.folder / single).rmdir()

    def publish(self) -> None:
        """Take the place of the folder that was asked for."""
        self.close()
        (self.folder / _LOCK).unlink(missing_ok=True)
        if self.out.is_dir():
            shutil.rmtree(self.out)
        self.folder.rename(self.out)
