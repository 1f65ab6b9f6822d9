"""What of a student's time is not in its stand-ins: norms, activations, sums, which stay as they are.

    python benchmarks/rest.py [--rounds 10] [--write]

WRN-28-10 at 1.2 M parameters in PyTorch eager mode, as `understudy bench` plans it, beside itself with every
stand-in free: its output is there already.

And its roofline: every operation that the student runs needs its mult-adds at the pace of a large product, or
its inputs, outputs and weights moved at the pace of a copy, whichever is longer, both measured here. "fused"
is the same where norms and activations cost nothing, as in runtimes that join them to the product before.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import understudy as us
from measure import best_of, write
from understudy._util.records import to_plain
from understudy.bench.record import Roof
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


class Least(TorchFunctionMode):
    """The least time in ms that all operations of a call take by the roofline."""

    def __init__(self, roof: Roof) -> None:
        super().__init__()
        self.roof = roof
        self.eager = self.fused = 0.0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run it, and add what it needs; whatever only looks at its input in another way needs nothing."""
        given = (*args, *(kwargs or {}).values())
        out = func(*args, **(kwargs or {}))
        read = [value for value in given if isinstance(value, Tensor)]
        if isinstance(out, Tensor) and out.data_ptr() not in [value.data_ptr() for value in read]:
            moved = sum(value.nbytes for value in read) + out.nbytes
            least = self.roof.least_ms(out.numel() * _summed(func.__name__, *read[:2]), moved)
            self.eager += least
            self.fused += 0 if func.__name__ in JOINED else least
        return out


def _summed(name: str, *read: Tensor) -> int:
    """Products that one output of an operation sums; none where it is no product."""
    if name in ("conv2d", "linear"):
        return read[1][0].numel()
    return read[0].shape[-1] if name in ("matmul", "bmm") else 0


def least(model: nn.Module, x: Tensor, roof: Roof) -> dict[str, float]:
    """By the roofline, of one call after the first, which prepares what is kept."""
    run = call(model, x)
    run()
    with Least(roof) as found:
        run()
    return {"roof_ms": round(found.eager, 2), "fused_roof_ms": round(found.fused, 2)}


def call(model: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.inference_mode():
            return model(x)

    return run


def measured(batch: int, rounds: int, roof: Roof) -> dict[str, Any]:
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
    floors = {name: least(model, images, roof) for name, model in models.items() if "free" not in name}
    taken = best_of(calls, rounds)
    best = {
        name: min(time for key, time in taken.items() if key.partition("|")[0] == name) for name in models
    }
    return {
        "dense_ms": round(best["dense"], 2),
        **{f"dense_{name}": value for name, value in floors["dense"].items()},
        "students": {
            name: {
                "ms": round(best[name], 2),
                "rest_ms": round(best[f"{name}, free"], 2),
                **floors[name],
            }
            for name in STUDENTS
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/rest.json")
    given = parser.parse_args()
    roof = measure_roof()
    found = {str(batch): measured(batch, given.rounds, roof) for batch in BATCHES}
    for batch, one in found.items():
        print(f"batch {batch}: dense {one['dense_ms']} ms, {roof}")
        for name, student in one["students"].items():
            print(f"  {name}: {student}")
    if given.write:
        print(write("rest", {"network": NETWORK, "params": BUDGET, "roof": to_plain(roof), "batches": found}))


if __name__ == "__main__":
    main()
