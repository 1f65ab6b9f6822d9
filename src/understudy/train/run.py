"""A run folder: settings, metrics, checkpoints, result. It belongs to one run and is never overwritten."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import torch

from understudy._util.files import lock, whole_file
from understudy._util.records import (
    Record,
    RecordError,
    from_plain,
    parse_json,
    read_record,
    to_plain,
    write_record,
)
from understudy.planning.plan import Plan

from .checkpoint import Checkpoint, CheckpointError, read_checkpoint, write_checkpoint
from .config import CONFIG, Inputs, RunError, read_config, write_config
from .figures import Epoch, Outcome, RunStatus, Standing
from .recipe import FORMAT, Recipe

# The names of what a run leaves in its folder; nowhere else are they written out.
PLAN, METRICS, MODEL = "plan.json", "metrics.jsonl", "model.safetensors"
RESULT, STATUS, CHECKPOINTS = "result.json", "status.json", "checkpoints"
_LOCK = ".lock"
_FILES = (CONFIG, PLAN, METRICS, MODEL, RESULT, STATUS)
_KEEP = 2  # checkpoints
_LOOKS = 5  # at a lock that one who only asks may hold for a moment


def _line(epoch: Epoch) -> str:
    """An epoch as a line of metrics.jsonl."""
    return json.dumps(to_plain(epoch)) + "\n"


def _is_ours(path: Path) -> bool:
    """What a run makes before its settings are on disk, and a kill may leave behind."""
    return path.name in (CHECKPOINTS, _LOCK) or path.name.startswith(f".{CONFIG}.")


class RunInUseError(RunError):
    """A folder that another process has taken."""


def _changes(old: Run, new: Run) -> list[str]:
    """What differs between two runs, in words."""
    before, after = old.recipe.settings(), new.recipe.settings()
    changed = [
        f"{key} {before.get(key, '')!r} → {after.get(key, '')!r}"
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    ]
    if old.inputs.teacher != new.inputs.teacher:
        changed.append("another teacher")
    if old.inputs.plan != new.inputs.plan:
        changed.append("another plan")
    return changed


@dataclasses.dataclass(frozen=True)
class Summary:
    """How a run stands; a run that was killed is `stopped`, and what is not known yet is None."""

    status: str
    reason: str
    epochs: int
    test_error: float | None
    params: int | None
    mult_adds: int | None


class Run:
    """One training run on disk.

    config.json      the resolved recipe, what its teacher and plan are, the identity that follows from them
    plan.json        the plan, when the network is substituted
    metrics.jsonl    one line an epoch
    checkpoints/     the last two, step-N.safetensors
    model.safetensors, result.json   once it has finished
    status.json      running, finished, diverged or failed, with the reason

    >>> import torch
    >>> from understudy.train import Job, Recipe, Run, fit
    >>> batches = [(torch.randn(8, 4), torch.randint(2, (8,)))]
    >>> _ = fit(Job(torch.nn.Linear(4, 2), batches, settings=Recipe(epochs=2)), "run")
    >>> run = Run.read("run")
    >>> run.status, len(run.metrics()), run.model_file.name
    ('finished', 2, 'model.safetensors')
    """

    def __init__(self, folder: Path, recipe: Recipe, inputs: Inputs | None = None) -> None:
        self.folder = folder
        self.recipe = recipe
        self.inputs = inputs or Inputs()
        self._lock: TextIO | None = None

    @classmethod
    def open(cls, folder: Path, recipe: Recipe, inputs: Inputs | None = None) -> Run:
        """A run whose folder is taken."""
        run = cls(folder, recipe, inputs)
        run.take()
        return run

    def take(self) -> None:
        """Start the run in an empty or new folder, or take up the same run again."""
        folder, config = self.folder, self.folder / CONFIG
        if folder.exists() and not folder.is_dir():
            raise RunError(f"{folder} is a file: choose another --out")
        if folder.is_dir() and not config.exists() and any(not _is_ours(path) for path in folder.iterdir()):
            raise RunError(f"{folder} is not empty and holds no run: choose another --out")
        (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            self._settle()
        except BaseException:
            self.close()
            raise

    def _settle(self) -> None:
        """Make sure that the folder is this run's, and clear what a kill left half written."""
        folder = self.folder
        if (folder / CONFIG).exists():
            held = Run.read(folder)
            if held.identity != self.identity:
                changed = "; ".join(_changes(held, self)[:4])
                raise RunError(f"{folder} belongs to another run ({changed}): choose another --out")
        write_config(folder, self.recipe, self.inputs, self.identity)
        for name in (*_FILES, f"{CHECKPOINTS}/step-*"):
            for leftover in (folder / name).parent.glob(f".{Path(name).name}.*"):
                leftover.unlink()

    @classmethod
    def read(cls, folder: str | Path) -> Run:
        """An existing run, to look at."""
        folder = Path(folder)
        return cls(folder, *read_config(folder))

    @property
    def identity(self) -> str:
        """A hash of what decides the outcome."""
        return self.recipe.identity(teacher=self.inputs.teacher, plan=self.inputs.plan)

    @property
    def model_file(self) -> Path:
        """Where the trained network lies once the run has finished."""
        return self.folder / MODEL

    def has_finished(self, report: Callable[[str], None] = lambda _: None) -> bool:
        """Whether the folder holds this very run, done; where what it says of that is odd, it goes on."""
        if not (self.folder / CONFIG).is_file() or Run.read(self.folder).identity != self.identity:
            return False
        try:
            return self.status == "finished" and self.outcome().epoch is not None
        except RunError as error:
            report(f"passed over: {error}")
            return False

    def _take_lock(self) -> None:
        """Take the folder, or raise; `is_in_use` of another process is waited for."""
        self._lock = (self.folder / _LOCK).open("w")
        try:
            for _ in range(_LOOKS):
                if lock(self._lock):
                    return
                time.sleep(0.05)
            raise RunInUseError(f"{self.folder} is in use by another process")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # ---- small files ---------------------------------------------------------------------------------

    def _read(self, name: str, kind: type[Record], absent: Record) -> Record:
        """One record of the folder, or what stands for one that is not there."""
        path = self.folder / name
        try:
            return read_record(kind, path, FORMAT) if path.exists() else absent
        except RecordError as error:
            told = str(error).removeprefix(f"{path}: ")
            raise RunError(f"{path} is damaged: {told}") from error

    def set_status(self, status: Standing, *, step: int | None = None, reason: str = "") -> None:
        """Record how the run stands."""
        write_record(self.folder / STATUS, RunStatus(status, round(time.time()), step, reason), FORMAT)

    def stands(self) -> RunStatus:
        """How the run stands, by what it wrote itself."""
        return self._read(STATUS, RunStatus, RunStatus())

    @property
    def status(self) -> Standing:
        """running, finished, diverged, failed, or new."""
        return self.stands().status

    def set_outcome(self, outcome: Outcome) -> None:
        """Record what came out."""
        write_record(self.folder / RESULT, outcome, FORMAT)

    def outcome(self) -> Outcome:
        """What came out, or nothing yet."""
        return self._read(RESULT, Outcome, Outcome())

    def is_in_use(self) -> bool:
        """Whether a process trains in this folder now."""
        try:
            with (self.folder / _LOCK).open() as stream:
                return not lock(stream, shared=True)
        except FileNotFoundError:
            return False

    def summary(self) -> Summary:
        """How the run stands, for a table."""
        stands, epochs, outcome = self.stands(), self.metrics(), self.outcome()
        price: Outcome | Plan = outcome
        if outcome.params is None and (self.folder / PLAN).exists():
            try:
                price = Plan.load(self.folder / PLAN)
            except RecordError as error:
                raise RunError(str(error)) from error
        last = epochs[-1].errors if epochs else None
        return Summary(
            status="stopped" if stands.status == "running" and not self.is_in_use() else stands.status,
            reason=stands.reason,
            epochs=len(epochs),
            test_error=None if last is None else last.test_error,
            params=price.params,
            mult_adds=price.mult_adds,
        )

    def metrics(self) -> list[Epoch]:
        """All epochs so far; from a line on that was cut short by a kill, or is odd, none is believed."""
        path = self.folder / METRICS
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        records: list[Epoch] = []
        for line in text.splitlines():
            try:
                records.append(from_plain(Epoch, parse_json(line)))
            except RecordError:
                break
        return records

    def keep_metrics(self, epochs: int) -> None:
        """Forget epochs that will be run again."""
        kept = [epoch for epoch in self.metrics() if epoch.epoch < epochs]
        with whole_file(self.folder / METRICS) as temporary:
            temporary.write_text("".join(map(_line, kept)), encoding="utf-8")

    def log(self, epoch: Epoch) -> None:
        """Add one epoch."""
        with (self.folder / METRICS).open("a", encoding="utf-8") as stream:
            stream.write(_line(epoch))

    # ---- checkpoints ---------------------------------------------------------------------------------

    def checkpoints(self) -> list[Path]:
        """The checkpoint files, newest first."""
        return sorted((self.folder / CHECKPOINTS).glob("step-*.safetensors"), reverse=True)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint whole, then drop all but the last two."""
        path = self.folder / CHECKPOINTS / f"step-{checkpoint.state.progress.step:09d}.safetensors"
        try:
            write_checkpoint(path, checkpoint, self.identity)
        except OSError as error:
            raise RunError(f"cannot write the checkpoint {path}: {error}") from error
        for old in self.checkpoints()[_KEEP:]:
            old.unlink()

    def latest(
        self, device: torch.device, check: Callable[[Checkpoint], None] = lambda _: None
    ) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole and of this run, and why any newer one was refused.

        `check` raises a CheckpointError for one that the run cannot take up.
        """
        refused: list[str] = []
        for path in self.checkpoints():
            try:
                found = read_checkpoint(path, self.identity, device)
                check(found)
                return found, refused
            except CheckpointError as error:
                told = str(error)
                refused.append(told if told.startswith(path.name) else f"{path.name} is damaged ({told})")
        return None, refused
