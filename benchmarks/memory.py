"""Peak memory of a training step with every transform against the dense network at the same batch.

    python benchmarks/memory.py [--repeats 3] [--write]

Two steps of SGD with momentum are measured twice:

tensors   the most bytes of tensors alive at once, from the record of the allocator: exact, the same on every
          run and machine. This is the number to trust; weights, gradients, momentum and batch are part of it.
process   what the resident memory of a fresh process grew by at its peak, from what it was before the steps.
          It holds the scratch memory of the convolution library as well, which the dense network needs most
          of, and what the C library has not yet given back; every tensor of 64 KiB up is given back at once.

"kept" is the tensors' peak with recomputation off in every layer: what a step needs if nothing is recomputed.
"time" is a step that recomputes over one that does not, both in one process and interleaved. "separable" is
the network with dense pointwise maps after its depthwise ones, for information.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn

import understudy as us
from measure import best_of, write
from understudy._util.text_tables import table
from understudy.bench.worker import peak_bytes
from understudy.layers import stand_ins

# network, batch, budgets
CASES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "wrn_16_2, batch 128": ("wrn_16_2", 128, ("138.3k", "34.6k")),  # 20 % and 5 % of the parameters
    "wrn_28_10, batch 16": ("wrn_28_10", 16, ("1.2M",)),
}
LIMIT = 2.0
LABELS = {"": "dense network", "dense": "separable"}
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # larger blocks go back to the system when they are released


def build(network: str, transform: str, budget: str) -> nn.Module:
    """A student at the budget or as near as its transform gets; the dense network without a transform."""
    torch.manual_seed(0)
    model = us.create_model(network)
    if not transform:
        return model
    example = torch.zeros(1, 3, 32, 32)
    try:
        plan = us.plan(model, transform, params=budget, example=example)
    except us.BudgetError as error:
        plan = us.plan(model, transform, params=error.lowest, example=example)
    return us.substitute(model, plan)


def training_step(model: nn.Module, batch: int) -> tuple[Callable[[], None], list[Tensor]]:
    """One step of training, from a fresh optimiser on, and the tensors that are there before it."""
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    x = x.to(memory_format=torch.channels_last)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return step, [x, y, *model.parameters(), *model.buffers()]


def tensors(model: nn.Module, batch: int, repeats: int) -> dict[str, Any]:
    """Exact peaks with and without recomputation, and what it costs in time."""
    step, held = training_step(model, batch)
    layers = [layer for _, layer in stand_ins(model)]

    def recomputing(wanted: bool) -> Callable[[], None]:
        def run() -> None:
            for layer in layers:
                layer.execution = us.Execution(recompute=None if wanted else False)
            step()

        return run

    measured: dict[str, Any] = {"params": sum(parameter.numel() for parameter in model.parameters())}
    measured["tensors"] = peak_bytes(twice(recomputing(True)), held)
    if layers:
        model.zero_grad(set_to_none=True)
        step, held = training_step(model, batch)
        measured["kept"] = peak_bytes(twice(recomputing(False)), held)
        times = best_of({"recompute": recomputing(True), "keep": recomputing(False)}, repeats)
        measured["time"] = times["recompute"] / times["keep"]
    return measured


def process(model: nn.Module, batch: int) -> dict[str, Any]:
    """How far the resident memory rises above what it was before two steps (Linux)."""
    step, _ = training_step(model, batch)
    before = status("VmRSS")
    twice(step)()
    return {"process": status("VmHWM") - before}


def status(key: str) -> int:
    """Bytes that the system says of this process; its ru_maxrss would begin with the parent's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (found,) = (line.split() for line in lines if line.startswith(f"{key}:"))
    return int(found[1]) * 1024


def twice(step: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        step()
        step()

    return run


def process_in_a_fresh_process(*arguments: object) -> dict[str, Any]:
    """Only there is the peak that of the steps."""
    command = [sys.executable, __file__, "--process", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | MALLOC)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure_case(network: str, batch: int, budget: str, repeats: int) -> dict[str, dict[str, Any]]:
    """Every transform, and its ratio to the dense network."""
    cells: dict[str, dict[str, Any]] = {}
    for transform in ("", *us.list_transforms()):
        cell = cells[transform] = tensors(build(network, transform, budget), batch, repeats)
        cell |= process_in_a_fresh_process(network, transform, budget, batch)
        for key in ("tensors", "process", "kept"):
            if key in cell:
                reference = cells[""]["process" if key == "process" else "tensors"]
                cell[f"{key}_ratio"] = round(cell[key] / reference, 3)
    return cells


def rows(cells: dict[str, dict[str, Any]]) -> list[tuple[str, ...]]:
    def ratio(cell: dict[str, Any], key: str) -> str:
        return f"{cell[key]:.2f}" if key in cell else ""

    return [
        (
            LABELS.get(name, name),
            f"{cell['params']:,}",
            f"{cell['tensors'] / 2**20:.1f}",
            ratio(cell, "tensors_ratio"),
            ratio(cell, "kept_ratio"),
            f"{cell['process'] / 2**20:.0f}",
            ratio(cell, "process_ratio"),
            ratio(cell, "time"),
        )
        for name, cell in cells.items()
    ]


COLUMNS = (
    "network",
    ">parameters",
    ">tensors, MiB",
    ">× dense",
    ">kept",
    ">process, MiB",
    ">× dense",
    ">time",
)


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--process"]:
        network, transform, budget, batch = sys.argv[2:]
        print(json.dumps(process(build(network, transform, budget), int(batch))))
        return
    parser = argparse.ArgumentParser(description="Peak memory of a training step, against dense.")
    parser.add_argument("--repeats", type=int, default=3, help="timed steps, the best counts")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/memory.json")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for title, (name, size, budgets) in CASES.items():
        for spent in budgets:
            cells = measure_case(name, size, spent, arguments.repeats)
            results[f"{title}, {spent}"] = {LABELS.get(key, key): cell for key, cell in cells.items()}
            Console(width=110).print(
                table(COLUMNS, rows(cells), title=f"{title}, {spent} parameters or the nearest")
            )
    worst = max(cell["tensors_ratio"] for cells in results.values() for cell in cells.values())
    print(f"the most is {worst:.2f} × dense; the limit is {LIMIT}")
    if arguments.write:
        print(write("memory", {"limit": LIMIT, "worst": worst, "cases": results}))
    if worst > LIMIT:
        sys.exit(1)


if __name__ == "__main__":
    main()
