"""One cell in a process of its own: `python -m understudy.bench.worker CELL` prints what it measured as JSON.

Thread pools of several runtimes in one process would disturb each other.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from understudy._util.layouts import lay_channels_last_
from understudy._util.records import from_plain, to_plain
from understudy._util.timing import Timing, time_in_turns
from understudy.counting.trace import Example
from understudy.deploy.export import output_error
from understudy.deploy.formats import write, written
from understudy.deploy.graph import ExportError, as_call, capture, outputs, ready
from understudy.deploy.runtimes import SUFFIXES, Format, needed, opened
from understudy.students.file import file_size

from .record import Cell, Done, Measured, Roof
from .subjects import Subject, subjects_of, training_step

_ROUNDS = 200
_COPIED = 1 << 25  # floats: more than caches hold
_SQUARE = 1536
_MOST_ERROR = 2e-2  # of the largest output: what is further off is another network


def measure(cell: Cell, seconds: float) -> Done:
    """All subjects of a cell in turns; a subject that the runtime cannot run is left out, and said."""
    subjects, example = subjects_of(cell)
    calls: dict[Arranged, Callable[[], object]] = {}
    sizes: dict[str, int | None] = {}
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, subject in subjects.items():
            try:
                for channels_last in _layouts(cell, example):
                    arranged = Arranged(name, channels_last)
                    path = Path(folder) / f"{len(calls)}"
                    call, sizes[name] = _prepared(cell, *_laid_out(subject, example, channels_last), path)
                    call()
                    calls[arranged] = call
            except Exception as error:  # whatever a runtime raises: the others still tell something
                problems.append(f"{name}: {' '.join(str(error).split())[:200]}")
        taken = {} if not calls else time_in_turns(calls, rounds=_ROUNDS, seconds=seconds)
        measured = []
        for name in dict.fromkeys(arranged.subject for arranged in taken):
            ways = [arranged for arranged in taken if arranged.subject == name]
            best = min(ways, key=lambda arranged: taken[arranged].best)
            held = subjects[name].module.parameters()
            peak = peak_bytes(calls[best], held) if cell.runtime == "eager" else None
            measured.append(_record(best, subjects[name], taken[best], peak, sizes[name]))
    return Done(cell, tuple(measured), "; ".join(problems) or None)


class Arranged(NamedTuple):
    """A subject in one of two layouts."""

    subject: str
    channels_last: bool


def _layouts(cell: Cell, example: Example) -> tuple[bool, ...]:
    """Images lie in memory by channel or by pixel; a runtime with files of its own chooses by itself."""
    has_choice = cell.runtime in ("eager", "compiled") and isinstance(example, Tensor) and example.dim() == 4
    return (False, True) if has_choice else (False,)


def _laid_out(subject: Subject, example: Example, channels_last: bool) -> tuple[Subject, Example]:
    if not channels_last:
        return subject, example
    assert isinstance(example, Tensor)
    module = lay_channels_last_(copy.deepcopy(subject.module))
    moved = example.contiguous(memory_format=torch.channels_last)
    return dataclasses.replace(subject, module=module), moved


def _record(
    arranged: Arranged, subject: Subject, timing: Timing, peak: int | None, size: int | None
) -> Measured:
    return Measured(
        subject=arranged.subject,
        params=subject.params,
        mult_adds=subject.mult_adds,
        moved=subject.moved,
        best_ms=1000 * timing.best,
        median_ms=1000 * timing.median,
        spread=timing.spread,
        calls=timing.count,
        channels_last=arranged.channels_last,
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
    network = ready(subject.module)
    write(capture(network, example), file, kind, type(network).__name__)
    runner = opened(file, kind)
    error = output_error(runner(example), outputs(network, example))
    if not error <= _MOST_ERROR:
        raise ExportError(f"{kind} gives something else than PyTorch: {error:.1e} of the largest output")
    return lambda: runner(example), sum(each.stat().st_size for each in written(file))


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
