"""The folder of a compression while it is made: beside the one that it becomes, whole or not at all.

It is called as the folder with `.part` after it, belongs to one process at a time, and takes the folder's
place at the end. One that was killed is gone on with by whoever asks for the same, also where only the last
step is missing: what going on needs is cleared when all is in its place.
"""

from __future__ import annotations

import dataclasses
import os
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
_FORMAT = 2


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
    """What is there so far of a compression into the folder `out`, which is worked on in a `with`.

    A ValueError where something else is there already, or somebody is at work: `force` replaces what another
    compression left. An error leaves nothing behind where no student was made. To enter it again within has
    no effect.
    """

    def __init__(self, out: Path, asked: Asked, *, force: bool = False) -> None:
        self.out, self.asked, self.force = Path(os.path.realpath(out)), asked, force
        self.folder = self.out.parent / f"{self.out.name}.part"
        self._lock: TextIO | None = None
        if not self.out.parent.is_dir():
            raise FileNotFoundError(f"no folder {out.parent} to make {out.name} in")
        self.is_resumed = False
        self._check_out()

    def __enter__(self) -> Unfinished:
        if self._lock is None:
            self._lock = self._taken()
            try:
                self._check_out()  # somebody may have finished just now
                self.is_resumed = self._is_ours()
                write_record(self.folder / _ASKED, self.asked, _FORMAT)
            except BaseException as error:
                self.__exit__(type(error))
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._lock is not None and kind is not None and self.folder.is_dir() and self._is_bare():
            self._let_go_to_move()
            shutil.rmtree(self.folder)
        self._let_go()

    def _taken(self) -> TextIO:
        """The lock of the folder, which is made where there is none."""
        self.folder.mkdir(exist_ok=True)
        path = self.folder / _LOCK
        stream = path.open("w")
        try:
            if lock(stream) and path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):
                return stream
            raise ValueError(f"{self.folder} is in use by another process")
        except BaseException:
            stream.close()
            raise

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _let_go_to_move(self) -> None:
        """Windows neither moves nor deletes a folder with an open file in it."""
        if os.name == "nt":
            self._let_go()

    def _is_bare(self) -> bool:
        """Whether the folder holds no student, and nothing of somebody else."""
        is_ours = (self.folder / _ASKED).is_file() or all(
            path.name == _LOCK or path.name.startswith(f".{_ASKED}.") for path in self.folder.iterdir()
        )
        return is_ours and not any(self.folder.rglob(_RECORD))

    def _check_out(self) -> None:
        """Refuse to replace what is in the folder's place, but what a killed one had begun to put there."""
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"{self.out} is a file: choose another --out")
        is_begun = all((place / _ASKED).is_file() for place in (self.folder, self.out))
        if is_begun or not self.out.is_dir() or not any(self.out.iterdir()):
            return
        if not (self.force and (self.out / FILE).is_file()):
            way = f"--force replaces only what holds {FILE}" if self.force else "or --force replaces it"
            raise ValueError(f"{self.out} is not empty: choose another --out; {way}")

    def _is_ours(self) -> bool:
        """Whether students of the same compression were left; those of another are refused, or dropped."""
        if self._is_bare():
            self._clear()
            return False
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
        self._clear()
        return False

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if path.name != _LOCK:
                _remove(path)

    # ---- students --------------------------------------------------------------------------------------

    def _home(self, name: str) -> Path:
        """Where a student's files are: one alone has them at the top."""
        is_single = len(self.asked.transforms) == len(self.asked.budgets) == 1
        return self.folder if is_single else self.folder / name

    def run_folder(self, name: str) -> Path:
        """Where a student is trained."""
        return self._home(name) / _RUN

    def keep(self, made: Made) -> None:
        """Write a student; it is there once its record is, until when one from before recovery stays."""
        folder = self._home(made.record.name)
        folder.mkdir(exist_ok=True)
        save(made.network, folder / _NEW)
        made.plan.save(folder / PLAN)
        write_record(folder / _RECORD, made.record, _FORMAT)
        (folder / _NEW).replace(folder / STUDENT)
        if made.record.recovery is not None:
            shutil.rmtree(folder / _RUN, ignore_errors=True)

    def kept(self, name: str) -> Student | None:
        """What is known of a student that was made before."""
        path = self._home(name) / _RECORD
        return read_record(Student, path, _FORMAT) if self.is_resumed and path.is_file() else None

    def made(self, name: str, model: nn.Module) -> Made:
        """A student that was made before, as it was."""
        record = self.kept(name)
        assert record is not None
        folder = self._home(name)
        if (folder / _NEW).is_file() and (record.recovery is not None or not (folder / STUDENT).is_file()):
            (folder / _NEW).replace(folder / STUDENT)  # killed right after its record was written
        return Made(load(folder / STUDENT, model).eval(), Plan.load(folder / PLAN), record)

    # ---- the end ---------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Take the place of the folder that was asked for, and clear what only going on needs."""
        self._check_out()
        for path in [*self.folder.glob(".*"), *self.folder.glob("*/.*")]:
            if path.name != _LOCK:
                path.unlink()
        for path in [*self.folder.glob(_RUN), *self.folder.glob(f"*/{_RUN}")]:  # of recoveries that diverged
            shutil.rmtree(path)
        self._let_go_to_move()
        if self._made_way():
            self.folder.rename(self.out)
        else:
            shutil.copy2(self.folder / _ASKED, self.out)  # first: it tells whose the rest is
            shutil.copytree(self.folder, self.out, dirs_exist_ok=True)
        for path in [*self.out.rglob(_RECORD), self.out / _LOCK, self.out / _ASKED]:
            path.unlink()
        if self.folder.is_dir():
            shutil.rmtree(self.folder)
        self._let_go()

    def _made_way(self) -> bool:
        """Remove the folder that is to be replaced; one that has to stay is emptied, and it is False."""
        if not self.out.is_dir():
            return True
        for path in self.out.iterdir():
            _remove(path)
        if self.out.samefile(Path.cwd()):  # who typed the command is in it
            return False
        try:
            self.out.rmdir()
        except OSError:  # a disk is mounted there
            return False
        return True


def _remove(path: Path) -> None:
    """A file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
