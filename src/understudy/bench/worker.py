"""One cell in a process of its own: `python -m understudy.bench.worker CELL` prints what it measured as JSON.

Thread pools of several runtimes in one process would disturb each other.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from understudy._util.records import from_plain, to_plain
from understudy._util.timing import Timing, time_in_turns
from understudy.counting.trace import Example
from understudy.deploy.formats import write, written
from understudy.deploy.graph import as_call, capture, ready
from understudy.deploy.runtimes import SUFFIXES, Format, needed, opened
from understudy.students.file import file_size

from .record import Cell, Done, Measured, Roof
from .subjects import Subject, subjects_of, training_step

_ROUNDS = 200
_LEAST = 3  # rounds, however long they take
_COPIED = 1 << 25  # floats: more than caches hold
_SQUARE = 1536


def measure(cell: Cell, seconds: float) -> Done:
    """All subjects of a cell in turns; a subject that the runtime cannot run is left out, and said."""
    subjects, example = subjects_of(cell)
    calls: dict[str, Callable[[], object]] = {}
    sizes: dict[str, int | None] = {}
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, subject in subjects.items():
            try:
                call, sizes[name] = _prepared(cell, subject, example, Path(folder) / f"{len(calls)}")
                call()
            except Exception as error:  # whatever a runtime raises: the others still tell something
                problems.append(f"{name}: {' '.join(str(error).split())[:200]}")
            else:
                calls[name] = call
        taken = {} if not calls else time_in_turns(calls, rounds=_ROUNDS, least=_LEAST, seconds=seconds)
        peaks = {
            name: peak_bytes(calls[name], subjects[name].module.parameters())
            for name in taken
            if cell.runtime == "eager"
        }
    measured = tuple(
        _record(name, subjects[name], timing, peaks.get(name), sizes[name]) for name, timing in taken.items()
    )
    return Done(cell, measured, "; ".join(problems) or None)


def _record(name: str, subject: Subject, timing: Timing, peak: int | None, size: int | None) -> Measured:
    return Measured(
        subject=name,
        params=subject.params,
        mult_adds=subject.mult_adds,
        moved=subject.moved,
        best_ms=1000 * timing.best,
        median_ms=1000 * timing.median,
        spread=timing.spread,
        rounds=timing.rounds,
        peak_bytes=peak,
        file_bytes=size,
    )


def _prepared(
    cell: Cell, subject: Subject, example: Example, path: Path
) -> tuple[Callable[[], object], int | None]:
    """A call of a subject in the cell's runtime, and the bytes of its file there."""
    if cell.mode == "training":
        return training_step(subject.module, example), None
    if cell.runtime in ("eager", "compiled"):
        module = subject.module.eval()
        size = None if cell.runtime == "compiled" else _saved_bytes(module)
        return _forward(torch.compile(module) if cell.runtime == "compiled" else module, example), size
    kind: Format = "onnx" if cell.runtime == "onnx" else "openvino"
    needed(kind)
    file = path.with_suffix(SUFFIXES[kind])
    write(capture(ready(subject.module), example), file, kind, type(subject.module).__name__)
    runner = opened(file, kind)
    return lambda: runner(example), sum(each.stat().st_size for each in written(file, kind))


def _saved_bytes(module: nn.Module) -> int | None:
    try:
        return file_size(module)
    except ValueError:  # a peer's own kind of numbers
        return None


def _forward(module: Callable[..., object], example: Example) -> Callable[[], object]:
    args, kwargs = as_call(example)

    def run() -> object:
        with torch.inference_mode():
            return module(*args, **kwargs)

    return run


def peak_bytes(run: Callable[[], object], held: Iterable[Tensor] = ()) -> int:
    """The most bytes of tensors alive at once on the CPU while `run` runs, with those `held` from before it.

    The allocator itself reports every allocation and release, those inside an operation too, so the number is
    exact and the same on every run. It does not see what was made before `run` go, nor what a library takes
    from the system by itself.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        run()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
    alive = peak = sum(storages.values())
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def measure_roof() -> Roof:
    """Copy bandwidth, both ways counted, and the mult-adds of a large product in a second."""
    source, target = torch.ones(_COPIED), torch.empty(_COPIED)
    left = torch.randn(_SQUARE, _SQUARE)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(source),
        "product": lambda: left @ left,
    }
    taken = time_in_turns(calls, rounds=10, seconds=5.0)
    return Roof(8 * _COPIED / taken["copy"].best / 1e9, _SQUARE**3 / taken["product"].best / 1e9)


def main() -> None:
    """Read the cell and the seconds from the command line."""
    if sys.argv[1] == "roof":
        result = to_plain(measure_roof())
    else:
        result = to_plain(measure(from_plain(Cell, json.loads(sys.argv[1])), float(sys.argv[2])))
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
