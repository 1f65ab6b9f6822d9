"""Student + path → a file for a runtime, checked in that runtime and timed beside the original."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves

from understudy._util.guard import the_network
from understudy._util.quantities import format_bytes
from understudy._util.text_tables import Shown, Table, table
from understudy._util.timing import time_in_turns
from understudy.counting.trace import Example, as_inputs

from .formats import quantise_, write, written
from .graph import ExportError, as_call, capture, lively, outputs, ready, rebatched
from .runtimes import Format, Runner, format_of, needed, not_run, opened

Precision = Literal["float32", "float16"]
_ALLOWED = {"float32": 1e-4, "float16": 2e-2}  # of the largest output
_ROUNDS, _SECONDS = 7, 10.0


@dataclasses.dataclass(frozen=True, repr=False)
class Exported(Shown):
    """A written file: printable. Errors are shares of the largest output, times those of one call.

    >>> import understudy as us
    >>> done = us.export(us.create_model("wrn_10_1"), "network.pt2", (1, 3, 16, 16))
    >>> done.params, done.bytes == done.path.stat().st_size
    (77850, True)
    """

    path: Path
    format: Format
    model: str
    params: int
    bytes: int
    error: float
    time_ms: float
    batch: int
    original_time_ms: float | None = None
    original_bytes: int | None = None
    float_error: float | None = None  # before it was made eight-bit
    agreement: float | None = None  # eight-bit: share of samples whose largest output is the same one

    def __repr__(self) -> str:
        return f"<Exported: {self.path.name}, {self.bytes:,} bytes, {self.time_ms:.2f} ms>"

    @property
    def speedup(self) -> float | None:
        """How many times quicker than the original in the same runtime."""
        return None if self.original_time_ms is None else self.original_time_ms / self.time_ms

    def table(self) -> Table:
        """The original, where it was given, and the student."""
        rows = []
        if self.original_time_ms is not None and self.original_bytes is not None:
            rows.append(
                ("original", f"{self.original_time_ms:.2f} ms", "", format_bytes(self.original_bytes), "")
            )
        quicker = f"{self.speedup:.2f}×" if self.speedup else ""
        rows.append(
            (
                "student" if rows else self.model,
                f"{self.time_ms:.2f} ms",
                quicker,
                format_bytes(self.bytes),
                f"{self.error:.1e}",
            )
        )
        caption = (
            f"{self.params:,} parameters; batch {self.batch}; error relative to PyTorch's largest output"
        )
        if self.float_error is not None:
            caption += f", before eight bits {self.float_error:.1e}"
        if self.agreement is not None:
            caption += f"; the same class for {100 * self.agreement:.1f} % of the calibration samples"
        return table(
            ["", ">time", ">quicker", ">file", ">error"],
            rows,
            title=f"{self.path.name} ({self.format})",
            caption=caption,
        )


def export(
    model: nn.Module,
    path: str | Path,
    example: Example,
    *,
    format: Format | None = None,
    original: nn.Module | None = None,
    dtype: Precision = "float32",
    int8: Sequence[Example] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a network, substituted or not, for another runtime, for any batch, and check it there.

    The format follows from the suffix, `.onnx`, `.xml` (OpenVINO, with a `.bin` beside it) or `.pt2`
    (torch.export), or is named. The file holds the parameters of the stand-ins and computes what follows from
    them in its graph; one of ONNX takes at most 4.4 bytes a parameter and 64 kB. Its outputs are compared
    with PyTorch's for two batches; more than 1e-4 of the largest output apart (float16: 2e-2) is an
    ExportError, and no file is left. A network in another precision becomes one in single precision first.

    `original` is exported beside it and timed in turns. `int8` are batches to calibrate eight-bit numbers by,
    with labels or without (ONNX only): the error before and after, and how often the largest output is the
    same, are in the result.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5))
    >>> us.export(student, "student.pt2", (1, 3, 32, 32)).error < 1e-4
    True
    """
    the_network(model, copied=True, run=True)
    if original is not None:
        the_network(original, "original", copied=True, run=True)
    path = Path(path)
    kind = format_of(path, format)
    if dtype not in get_args(Precision):
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(get_args(Precision))}")
    if int8 is not None:
        if kind != "onnx":
            raise ValueError(f"int8 is for the format onnx, not {kind}")
        if not len(int8):
            raise ValueError("int8 needs batches to calibrate by, such as int8=[x1, x2]")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} to")
    for file in written(path, kind):
        if file.exists() and not overwrite:
            raise FileExistsError(f"{file} exists; overwrite=True writes over it")
    needed(kind)
    network = ready(model)
    given = lively(example)
    if int8 is not None:
        int8 = [_calibrating(batch, given) for batch in int8]
    batches = [given, rebatched(given, _size(given) + 1)]
    wanted = [outputs(network, batch) for batch in batches]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / path.name
        graph = capture(network, given, half=dtype == "float16", fixed=int8 is not None)
        write(graph, made, kind, type(network).__name__)
        runner = _checked(opened(made, kind), kind, network)
        error = max(output_error(runner(batch), each) for batch, each in zip(batches, wanted, strict=True))
        if not error <= _ALLOWED[dtype]:
            raise ExportError(
                f"{type(network).__name__} as {kind} is {error:.1e} of its largest output off PyTorch's, "
                f"more than {_ALLOWED[dtype]:.0e}"
            )
        float_error = agreement = None
        if int8 is not None:
            quantise_(made, int8)
            runner, float_error = _checked(opened(made, kind), kind, network), error
            error = max(
                output_error(runner(batch), each) for batch, each in zip(batches, wanted, strict=True)
            )
            agreement = _agreement(runner, network, int8)
        calls = {"student": lambda: runner(given)}
        original_bytes = None
        if original is not None:
            beside = Path(folder) / f"original{path.suffix}"
            write(
                capture(ready(original), given, half=dtype == "float16"),
                beside,
                kind,
                type(original).__name__,
            )
            original_bytes = sum(file.stat().st_size for file in written(beside, kind))
            beside_runner = opened(beside, kind)
            calls["original"] = lambda: beside_runner(given)
        taken = time_in_turns(calls, rounds=_ROUNDS, seconds=_SECONDS)
        times = {name: 1000 * timing.best for name, timing in taken.items()}
        for file, target in zip(written(made, kind), written(path, kind), strict=True):
            file.replace(target)
    return Exported(
        path=path,
        format=kind,
        model=type(network).__name__,
        params=sum(parameter.numel() for parameter in network.parameters()),
        bytes=sum(file.stat().st_size for file in written(path, kind)),
        error=error,
        time_ms=times["student"],
        batch=_size(given),
        original_time_ms=times.get("original"),
        original_bytes=original_bytes,
        float_error=float_error,
        agreement=agreement,
    )


def _checked(runner: Runner, kind: Format, network: nn.Module) -> Runner:
    """A runner whose errors are those of an export."""

    def run(example: Example) -> list[Tensor]:
        try:
            return runner(example)
        except Exception as error:  # whatever a runtime raises
            raise not_run(kind, type(network).__name__, error) from error

    return run


def _calibrating(batch: Example, example: Example) -> Example:
    """A batch to calibrate by, without labels, its inputs in the order of the example's.

    It is in single precision: a shape, or zeros alone, would give ranges of nothing.
    """
    inputs = as_inputs(batch)
    if isinstance(inputs, tuple | list) and len(inputs) == 2 and not isinstance(example, tuple | list):
        inputs = as_inputs(inputs[0])  # behind it are labels
    if isinstance(inputs, Mapping) and isinstance(example, Mapping):
        inputs = {key: inputs[key] for key in example if key in inputs}
    if tree_flatten(as_call(inputs))[1] != tree_flatten(as_call(example))[1]:
        raise ValueError("int8 is calibrated by batches that are given as the example is: this one is not")
    floats = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if floats and not any(not leaf.is_meta and bool(leaf.any()) for leaf in floats):
        raise ValueError("int8 is calibrated by real batches: this one is a shape, or all zero")
    return lively(inputs)


def _size(example: Example) -> int:
    """Samples of an example: the first axis of its first tensor."""
    parts = (
        example.values()
        if isinstance(example, dict)
        else (example,)
        if isinstance(example, Tensor)
        else example
    )
    return next(len(part) for part in parts if isinstance(part, Tensor))


def output_error(got: list[Tensor], wanted: list[Tensor]) -> float:
    """The largest difference, as a share of the largest output that is finite.

    Infinite where outputs are missing, or where NaN and infinities are not the same ones.
    """
    if [tuple(one.shape) for one in got] != [tuple(one.shape) for one in wanted]:
        return math.inf
    return max((_share_off(*pair) for pair in zip(got, wanted, strict=True)), default=0.0)


def _share_off(got: Tensor, wanted: Tensor) -> float:
    got, wanted = got.double(), wanted.double()
    is_same = (got == wanted) | (got.isnan() & wanted.isnan())
    is_finite = got.isfinite() & wanted.isfinite()
    if not bool((is_same | is_finite).all()):
        return math.inf
    got, wanted = got[is_finite], wanted[is_finite]
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30)) if len(got) else 0.0


def _agreement(runner: Runner, network: nn.Module, batches: Sequence[Example]) -> float:
    same = count = 0
    for batch in batches:
        ours, theirs = runner(batch)[0], outputs(network, batch)[0]
        hits = ours.reshape(len(ours), -1).argmax(1) == theirs.reshape(len(theirs), -1).argmax(1)
        same, count = same + int(hits.sum()), count + len(hits)
    return same / max(1, count)
