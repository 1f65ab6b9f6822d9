"""What of a student's time is not in its stand-ins: norms, activations, sums, which stay as they are.

    python benchmarks/rest.py [--rounds 10] [--write]

WRN-28-10 at 1.2 M parameters in PyTorch eager mode, as `understudy bench` plans it, beside itself with every
stand-in free: its output is there already. The dense network's time over that of such a network is the most
that any student of it can be quicker without another runtime.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import understudy as us
from measure import best_of, write

NETWORK, BUDGET, MULTIPLE = "wrn_28_10", "1.2M", 16
STUDENTS: dict[str, dict[str, Any]] = {
    "low_rank": {},
    "low_rank:inside": {"spatial": "inside"},
    "tensor_train": {},
}
BATCHES = (1, 8)


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


def call(model: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.inference_mode():
            return model(x)

    return run


def measured(batch: int, rounds: int) -> dict[str, Any]:
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
    best = {
        name: min(time for key, time in taken.items() if key.partition("|")[0] == name) for name in models
    }
    return {
        "dense_ms": round(best["dense"], 2),
        "students": {
            name: {
                "ms": round(best[name], 2),
                "rest_ms": round(best[f"{name}, free"], 2),
                "times_quicker": round(best["dense"] / best[name], 2),
                "at_most": round(best["dense"] / best[f"{name}, free"], 2),
            }
            for name in STUDENTS
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/rest.json")
    given = parser.parse_args()
    found = {str(batch): measured(batch, given.rounds) for batch in BATCHES}
    for batch, one in found.items():
        print(f"batch {batch}: dense {one['dense_ms']} ms")
        for name, student in one["students"].items():
            print(f"  {name}: {student}")
    if given.write:
        print(write("rest", {"network": NETWORK, "params": BUDGET, "batches": found}))


if __name__ == "__main__":
    main()
