"""Student + path → a file for a runtime, checked in that runtime and timed beside the original."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor, nn

from understudy._util.guard import the_network
from understudy._util.quantities import format_bytes
from understudy._util.text_tables import Shown, Table, table
from understudy._util.timing import time_in_turns
from understudy.counting.trace import Example

from .formats import quantise_, write, written
from .graph import ExportError, capture, lively, outputs, ready, rebatched
from .runtimes import Format, Runner, needed, not_run, opened, target_of
from .samples import judge, read_samples, sample_count

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
    accuracy: float | None = None  # eight-bit: share of samples whose largest output is their label
    float_accuracy: float | None = None  # before it was made eight-bit
    samples: int | None = None  # that these are shares of
    judged: Literal["calibration", "test"] | None = None  # which samples these are

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
            caption += (
                f"\nof {self.samples:,} {self.judged} samples, the same class {100 * self.agreement:.1f} %"
            )
            if self.accuracy is not None and self.float_accuracy is not None:
                caption += (
                    f"; accuracy {100 * self.accuracy:.1f} %, "
                    f"before eight bits {100 * self.float_accuracy:.1f} %"
                )
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
    int8: Iterable[Example] | None = None,
    test: Iterable[Example] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write a network, substituted or not, for another runtime, for any batch, and check it there.

    The format follows from the suffix, `.onnx`, `.xml` (OpenVINO, with a `.bin` beside it) or `.pt2`
    (torch.export), or is named: a name without a suffix gets the one of its format, and `path` of the result
    says what was written. OpenVINO reads ONNX too: where it is named and the name ends in `.onnx`, that is
    written, which is smaller than `.xml` where layers are many and small, and run by OpenVINO.

    The file holds the parameters of the stand-ins and computes what follows from them in its graph; one of
    ONNX takes at most 4.4 bytes a parameter and 64 kB, and one of torch.export holds instead what PyTorch
    would compute in every call, up to four times as much. Its outputs are compared with PyTorch's for two
    batches; more than 1e-4 of the largest output apart (float16: 2e-2), or NaN, which nothing can be compared
    with, is an ExportError, and no file is left. A network in another precision becomes one in single
    precision first.

    `original` is exported beside it and timed in turns. `int8` are batches to calibrate eight-bit numbers by
    (ONNX only), each as the example is, alone or as (inputs, labels). The error before and after is in the
    result, and of the samples of `test`, or without them of these: how often the largest output is the same,
    and with labels, a class for each sample, the accuracy before and after.

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
    path, kind = target_of(path, format)
    if dtype not in get_args(Precision):
        raise ValueError(f"dtype {dtype!r} is not one of {', '.join(get_args(Precision))}")
    if int8 is not None and kind != "onnx":
        raise ValueError(f"int8 is for the format onnx, not {kind}")
    if test is not None and int8 is None:
        raise ValueError("test is what eight bits are judged by: give batches to calibrate by too, int8=[…]")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"no folder {path.parent} to write {path.name} to")
    for file in written(path):
        if file.exists() and not overwrite:
            raise FileExistsError(f"{file} exists; overwrite=True writes over it")
    needed(kind)
    size = sample_count(example)
    network = ready(model)
    given = lively(example)
    batches = [given, rebatched(given, size + 1)]
    wanted = [_checkable(outputs(network, batch), network) for batch in batches]
    classes = _classes(wanted[0])
    calibrating = None if int8 is None else read_samples("int8", int8, given, classes)
    judging = calibrating if test is None else read_samples("test", test, given, classes)
    beside = None if original is None else _beside(original, given)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        made = Path(folder) / f"{path.stem}{path.suffix.lower()}"
        # Quantisers know weights that layers hold, and PyTorch computes all others in every call.
        fixed = calibrating is not None or kind == "torch-export"
        graph = capture(network, given, half=dtype == "float16", fixed=fixed)
        write(graph, made, kind, type(network).__name__)
        runner = _checked(opened(made, kind), kind, network)
        error = max(output_error(runner(batch), each) for batch, each in zip(batches, wanted, strict=True))
        if not error <= _ALLOWED[dtype]:
            raise ExportError(
                f"{type(network).__name__} as {kind} is {error:.1e} of its largest output off PyTorch's, "
                f"more than {_ALLOWED[dtype]:.0e}"
            )
        float_error = verdict = None
        if calibrating is not None and judging is not None:
            quantise_(made, [batch.inputs for batch in calibrating])
            runner, float_error = _checked(opened(made, kind), kind, network), error
            error = max(
                output_error(runner(batch), each) for batch, each in zip(batches, wanted, strict=True)
            )
            if not math.isfinite(error):
                raise ExportError(
                    f"of eight bits, {type(network).__name__} gives outputs that are not finite"
                )
            verdict = judge(runner, network, judging)
        calls = {"student": lambda: runner(given)}
        original_bytes = None
        if beside is not None:
            dense = Path(folder) / f"original.{made.name}"
            write(capture(beside, given, half=dtype == "float16"), dense, kind, type(beside).__name__)
            original_bytes = sum(file.stat().st_size for file in written(dense))
            beside_runner = opened(dense, kind)
            calls["original"] = lambda: beside_runner(given)
        taken = time_in_turns(calls, rounds=_ROUNDS, seconds=_SECONDS)
        times = {name: 1000 * timing.best for name, timing in taken.items()}
        for file, target in zip(written(made), written(path), strict=True):
            file.replace(target)
    return Exported(
        path=path,
        format=kind,
        model=type(network).__name__,
        params=sum(parameter.numel() for parameter in network.parameters()),
        bytes=sum(file.stat().st_size for file in written(path)),
        error=error,
        time_ms=times["student"],
        batch=size,
        original_time_ms=times.get("original"),
        original_bytes=original_bytes,
        float_error=float_error,
        agreement=None if verdict is None else verdict.agreement,
        accuracy=None if verdict is None else verdict.accuracy,
        float_accuracy=None if verdict is None else verdict.float_accuracy,
        samples=None if verdict is None else verdict.samples,
        judged=None if verdict is None else "calibration" if test is None else "test",
    )


def _checked(runner: Runner, kind: Format, network: nn.Module) -> Runner:
    """A runner whose errors are those of an export."""

    def run(example: Example) -> list[Tensor]:
        try:
            return runner(example)
        except Exception as error:  # whatever a runtime raises
            raise not_run(kind, type(network).__name__, error) from error

    return run


def _checkable(made: list[Tensor], network: nn.Module) -> list[Tensor]:
    """Outputs that others can be compared with; infinities are, beside numbers."""
    name = type(network).__name__
    if not any(each.numel() for each in made):
        raise ExportError(f"{name} gives no tensor with a number in it: there is nothing to check")
    if any(bool(each.isnan().any()) for each in made) or not any(
        bool(each.isfinite().any()) for each in made
    ):
        raise ExportError(
            f"{name} gives NaN, or infinities alone, for the example: outputs that are not finite "
            "cannot be checked"
        )
    return made


def _classes(made: list[Tensor]) -> int | None:
    """Of how many classes the first output tells, if it is one row of several numbers for each sample."""
    return made[0].shape[1] if made[0].dim() == 2 and made[0].shape[1] > 1 else None


def _beside(original: nn.Module, given: Example) -> nn.Module:
    """The original for inference, tried on the example."""
    dense = ready(original)
    try:
        outputs(dense, given)
    except ValueError as error:
        raise ValueError(f"original does not take the example: {error}") from error
    return dense


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
