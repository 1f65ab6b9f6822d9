"""What of a student's time is not in its stand-ins: norms, activations, sums, which stay as they are.

    python benchmarks/rest.py [--rounds 10] [--write]

WRN-28-10 at 1.2 M parameters in PyTorch eager mode, as `understudy bench` plans it, beside itself with every
stand-in free: its output is there already.

And its roofline: every operation that the student runs takes its mult-adds at the pace of a large product, or
the time in which its inputs and weights are read and its output is written, whichever is longer. The latter
is measured in its place: the student is run with nothing but such copies, so that what its operations would
find in the cache is found there. "fused" is the same where norms and activations take no time, as in runtimes
that join them to the product before.

And what its calls of PyTorch take by themselves: each is timed where it stands, and the least times are added
up, so that nothing of ours is in the sum. Of wide layers the same is told beside how quick they could be.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import understudy as us
from measure import best_of, write
from understudy._util.layouts import lay_channels_last_
from understudy.bench.record import DENSE, Cell, Roof
from understudy.bench.run import KEPT_MEMORY
from understudy.bench.subjects import subjects_of
from understudy.bench.worker import measure_roof

NETWORK, BUDGET, MULTIPLE = "wrn_28_10", "1.2M", 16
STUDENTS: dict[str, dict[str, Any]] = {
    "low_rank": {},
    "low_rank:inside": {"spatial": "inside"},
    "shuffle": {},
    "shuffle:inside": {"spatial": "inside"},
    "tensor_train": {},
    "tucker": {},
    "hashed": {},
}
BATCHES = (1, 8)
WIDE, WIDTHS, LAYER_BATCHES = ("low_rank", "shuffle", "tensor_train"), (640, 1024), (32, 128)
JOINED = ("batch_norm", "relu")  # which runtimes join to the product before


class Free(nn.Module):
    """Answers with what the layer gave once."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.answer: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output on the first input, whatever this one is."""
        if self.answer is None:
            self.answer = self.layer(x)
        return self.answer


def with_free_layers(student: nn.Module) -> nn.Module:
    """A copy in which stand-ins take no time."""
    freed = copy.deepcopy(student)
    for path, layer in [*us.stand_ins(freed)]:
        freed.set_submodule(path, Free(layer))
    return freed


class Operation(NamedTuple):
    """What one operation of a call needs."""

    out: Tensor  # of its output's shape and layout, without values
    laid_out: list[Tensor]  # weights that no one can read as they are laid out: what they hold
    mult_adds: int
    joined: bool  # to the operation before, in other runtimes


class Listing(TorchFunctionMode):
    """The operations of a call; None for those that only look at their input."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Operation | None] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run it and list it."""
        out = func(*args, **(kwargs or {}))
        read = _tensors(args, kwargs)
        made = None
        if isinstance(out, Tensor) and out.data_ptr() not in [
            each.data_ptr() for each in read if _lies(each)
        ]:
            mult_adds = out.numel() * _summed(func.__name__, *read[:2])
            laid_out = [each.to_dense() for each in read if not _lies(each)]
            made = Operation(
                torch.empty_like(out, device="meta"), laid_out, mult_adds, func.__name__ in JOINED
            )
        self.found.append(made)
        return out


class Copying(TorchFunctionMode):
    """A call with copies in place of its operations, timed one by one."""

    def __init__(self, listed: Sequence[Operation | None]) -> None:
        super().__init__()
        self.listed = iter(listed)
        self.seconds: list[float] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Read what the operation reads and write as much as it writes."""
        operation = next(self.listed)
        if operation is None:
            return func(*args, **(kwargs or {}))
        out = torch.empty_like(operation.out, device="cpu")
        written = out.as_strided((out.numel(),), (1,))
        pairs = []
        for value in (*filter(_lies, _tensors(args, kwargs)), *operation.laid_out):
            held = min(
                value.numel(), value.untyped_storage().nbytes() // value.itemsize
            )  # it may be expanded
            pieces = value.as_strided((held,), (1,)).split(len(written))
            pairs += [(written[: len(piece)], piece) for piece in pieces]
        started = time.perf_counter()
        for target, source in pairs:
            target.copy_(source)
        self.seconds.append(time.perf_counter() - started)
        return out


class Timed(TorchFunctionMode):
    """A call whose operations are timed one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run it and look at the clock."""
        given = kwargs or {}
        started = time.perf_counter()
        out = func(*args, **given)
        self.seconds.append(time.perf_counter() - started)
        return out


def of_its_calls(run: Callable[[], object], rounds: int) -> float:
    """The ms of a call's operations alone, of each the least."""
    run()
    taken: list[list[float]] = []
    for _ in range(rounds):
        with Timed() as timed:
            run()
        taken.append(timed.seconds)
    least: list[float] = [min(same) for same in zip(*taken, strict=True)]
    return 1e3 * sum(least)


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[Tensor]:
    return [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, Tensor)]


def _lies(value: Tensor) -> bool:
    """Whether a tensor lies in memory as PyTorch indexes it, not as a library laid it out."""
    return value.layout is torch.strided


def _summed(name: str, *read: Tensor) -> int:
    """Products that one output of an operation sums; none where it is no product."""
    if name in ("conv2d", "linear", "_convolution_pointwise.default", "_linear_pointwise.default"):
        return read[1].shape[1:].numel()
    if name == "addmm":
        return read[1].shape[-1]
    return read[0].shape[-1] if name in ("matmul", "bmm") else 0


def least(model: nn.Module, x: Tensor, gmac_s: float, rounds: int) -> dict[str, float]:
    """By the roofline, of one call after the first, which prepares what is kept."""
    run = call(model, x)
    run()
    with Listing() as listing:
        run()
    made = [operation for operation in listing.found if operation is not None]
    copied = [math.inf] * len(made)
    for _ in range(rounds):
        with Copying(listing.found) as copying:
            run()
        copied = [min(pair) for pair in zip(copied, copying.seconds, strict=True)]
    needed = [
        (max(1e3 * seconds, one.mult_adds / (1e6 * gmac_s)), one.joined)
        for seconds, one in zip(copied, made, strict=True)
    ]
    eager = sum(ms for ms, _ in needed)
    return {
        "roof_ms": round(eager, 2),
        "fused_roof_ms": round(eager - sum(ms for ms, joined in needed if joined), 2),
    }


def call(model: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.inference_mode():
            return model(x)

    return run


def measured(batch: int, rounds: int, gmac_s: float) -> dict[str, Any]:
    """Times in ms, all in turns and in the layout that is quicker for each."""
    torch.manual_seed(0)
    dense = us.create_model(NETWORK).eval()
    images = torch.randn(batch, 3, 32, 32)
    calls: dict[str, Callable[[], object]] = {}
    models = {"dense": dense}
    for name, options in STUDENTS.items():
        plan = us.plan(dense, name.partition(":")[0], params=BUDGET, multiple=MULTIPLE, **options)
        models[name] = us.substitute(dense, plan).eval()
        models[f"{name}, free"] = with_free_layers(models[name])
    for name, model in models.items():
        calls[f"{name}|channels first"] = call(model, images)
        last = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        calls[f"{name}|channels last"] = call(last, images.contiguous(memory_format=torch.channels_last))
    taken = best_of(calls, rounds)
    floors = {name: least(models[name], images, gmac_s, rounds) for name in STUDENTS}
    best = {name: _least(taken, name) for name in models}
    alone = {key: of_its_calls(run, rounds) for key, run in calls.items() if "free" not in key}
    return {
        "dense_ms": round(best["dense"], 2),
        "students": {
            name: {
                "ms": round(best[name], 2),
                "rest_ms": round(best[f"{name}, free"], 2),
                "calls_ms": round(_least(alone, name), 2),
                **floors[name],
            }
            for name in STUDENTS
        },
    }


def _least(taken: Mapping[str, float], name: str) -> float:
    """Of both layouts."""
    return min(ms for key, ms in taken.items() if key.partition("|")[0] == name)


def measured_layers(rounds: int, roof: Roof) -> list[dict[str, Any]]:
    """Wide layers, in the layout that is quicker for each: how many times as quick as dense, and could be."""
    found = []
    for what in ("conv", "tokens"):
        for width, batch in itertools.product(WIDTHS, LAYER_BATCHES):
            cell = Cell(what, width, batch, "eager", "inference", WIDE, ratio=0.1)
            subjects, example = subjects_of(cell)
            assert isinstance(example, Tensor)
            calls = {
                f"{name}|channels first": call(subjects[name].module, example) for name in (DENSE, *WIDE)
            }
            if what == "conv":
                x = example.contiguous(memory_format=torch.channels_last)
                for name in (DENSE, *WIDE):
                    last = lay_channels_last_(copy.deepcopy(subjects[name].module))
                    calls[f"{name}|channels last"] = call(last, x)
            taken = best_of(calls, rounds)
            alone = {key: of_its_calls(run, rounds) for key, run in calls.items()}
            dense = _least(taken, DENSE)
            for name in WIDE:
                times_fewer = (subjects[DENSE].mult_adds or 0) / (subjects[name].mult_adds or 1)
                copied_ms = (subjects[name].moved or 0) / (1e6 * roof.copy_gb_s)
                found.append(
                    {
                        "what": what,
                        "width": width,
                        "batch": batch,
                        "transform": name,
                        "ideal": round(min(times_fewer, dense / copied_ms), 2),
                        "calls_alone": round(dense / _least(alone, name), 2),
                        "realised": round(dense / _least(taken, name), 2),
                    }
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/rest.json")
    given = parser.parse_args()
    roof = measure_roof()
    gmac_s = round(roof.gmac_s, 1)
    layers = measured_layers(5 * given.rounds, roof)
    for layer in layers:
        print(layer)
    found = {str(batch): measured(batch, given.rounds, gmac_s) for batch in BATCHES}
    for batch, one in found.items():
        print(f"batch {batch}: dense {one['dense_ms']} ms, {gmac_s} GMAC/s")
        for name, student in one["students"].items():
            print(f"  {name}: {student}")
    if given.write:
        told = {"network": NETWORK, "params": BUDGET, "gmac_s": gmac_s, "batches": found, "layers": layers}
        print(write("rest", told))


if __name__ == "__main__":
    if not KEPT_MEMORY.items() <= os.environ.items():  # the allocator reads them as the process begins
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEPT_MEMORY)
    main()
