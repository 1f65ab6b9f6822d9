"""How well the model of a layer's time chooses: every order that it may take, its time and the modelled one.

    python benchmarks/pace.py [--write]

1×1 convolutions in both layouts and tokens, at a tenth of the dense layer's parameters. What is chosen should
be the quickest, or nearly; `us.tune` measures where that matters.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import understudy as us
from measure import best_of, write
from understudy.bench.subjects import largest_knob
from understudy.layers import Conv, Linear
from understudy.layers.execution import Execution
from understudy.layers.geometry import Geometry
from understudy.layers.layer import Layer
from understudy.layers.pace import pace_of, works

FAMILIES = ("low_rank", "shuffle", "tensor_train", "tucker", "btt", "blast")
SHARE, ROUNDS = 0.1, 3
TOKENS = 16


class Case(NamedTuple):
    """What a layer is called on."""

    layout: str
    width: int
    batch: int

    @property
    def x(self) -> Tensor:
        """Images of at most 32 × 32 pixels, or sixteen tokens a sample."""
        if self.layout == "tokens":
            return torch.randn(self.batch, TOKENS, self.width)
        side = 32 if self.width < 320 else 16
        images = torch.randn(self.batch, self.width, side, side)
        return images.contiguous(memory_format=torch.channels_last) if self.layout == "rows" else images


def cases() -> Iterator[Case]:
    """Widths and batches, convolutions by channel and by pixel, and tokens."""
    for layout, widths in (("columns", (64, 160, 640)), ("rows", (64, 160, 640)), ("tokens", (384, 1024))):
        for width in widths:
            for batch in (1, 32):
                yield Case(layout, width, batch)


def measured(case: Case, name: str) -> dict[str, Any] | None:
    """The times of a family's orders; None where it has no knob that small."""
    family = us.get_transform(name)
    knob = largest_knob(family, case.width, SHARE)
    if knob is None:
        return None
    x = case.x
    transform = family(case.width, case.width, knob)
    dense = nn.Linear(case.width, case.width, bias=False)
    made: dict[str, nn.Module] = {"dense": dense}
    if case.layout != "tokens":
        made["dense"] = nn.Conv2d(case.width, case.width, 1, bias=False)
    orders = [order for order in transform.legal_orders if order.per_vector <= case.width**2]
    for order in orders:
        layer: Layer = (
            Linear(transform) if case.layout == "tokens" else Conv(transform, Geometry.pointwise(2))
        )
        layer.execution = Execution(order=order.name)
        made[order.name] = layer
    taken = best_of({key: _call(module.eval(), x) for key, module in made.items()}, ROUNDS)
    rows = case.layout != "columns"
    positions = x.numel() // case.width
    chosen = Execution().choose(transform, positions, inference=True, kept=True, rows=rows)
    modelled = {
        order.name: pace_of(works(family, case.width, case.width, knob, order), positions, rows=rows) / 1e6
        for order in orders
    }
    quickest = min(taken[order.name] for order in orders)
    return {
        **case._asdict(),
        "transform": name,
        "knob": knob,
        "chosen": chosen.name,
        "times_the_quickest": round(taken[chosen.name] / quickest, 3),
        "times_dense": round(taken[chosen.name] / taken["dense"], 3),
        "ms": {key: round(time, 4) for key, time in taken.items()},
        "modelled_ms": {key: round(time, 4) for key, time in modelled.items()},
    }


def _call(module: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> object:
        with torch.inference_mode():
            return module(x)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/pace.json")
    given = parser.parse_args()
    found = []
    for case in cases():
        for name in FAMILIES:
            one = measured(case, name)
            if one is not None:
                found.append(one)
                print({key: one[key] for key in ("transform", *Case._fields)}, one["times_the_quickest"])
    losses = sorted(one["times_the_quickest"] for one in found)
    summary = {
        "layers": len(found),
        "chosen_is_the_quickest": sum(loss < 1.05 for loss in losses),
        "median_times_the_quickest": losses[len(losses) // 2],
        "worst_times_the_quickest": losses[-1],
        "slower_than_dense_by_a_tenth": sum(one["times_dense"] > 1.1 for one in found),
    }
    print(summary)
    if given.write:
        write("pace", {"summary": summary, "layers": found})


if __name__ == "__main__":
    main()
