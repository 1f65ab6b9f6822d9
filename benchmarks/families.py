"""How near each family comes to trained matrices, plainly and in what their layers give.

    python benchmarks/families.py --weights DIR --cifar DIR --imagenet DIR --texts DIR --write

Pointwise layers of EfficientNet-Lite0, unfolded kernels of ResNet-56, linear layers of MiniLM; each family
at the largest knob within a share of the matrix's entries. An error is ‖W − Ŵ‖ / ‖W‖, or in the metric of the
data ‖(W − Ŵ) Σ^½‖ / ‖W Σ^½‖, Σ the covariance of the layer's inputs: the share of its outputs' spread that is
lost. Every cell is written as it ends: the same command goes on. `subjects.py` says what the folders hold.
`--draw` draws the figures of docs/choose.md and fills its tables from what was saved, and needs no folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import families_page
import understudy as us
from measure import RESULTS, write
from subjects import Folders, make
from understudy.layers.dense import the_dense_map
from understudy.transforms.metric import Metric
from understudy.transforms.orders import MANY_BITS

LAYERS = {
    "efficientnet_lite0": ("blocks.2.1.conv_pw", "blocks.2.1.conv_pwl", "blocks.3.1.conv_pw"),
    "resnet56": ("layer1.4.conv2", "layer2.4.conv2", "layer3.4.conv2"),
    "minilm": (
        "body.encoder.layer.2.attention.self.query",
        "body.encoder.layer.2.intermediate.dense",
        "body.encoder.layer.2.output.dense",
    ),
}
SHARES = (0.1, 0.25, 0.5)
SLOW = ("acdc", "toeplitz_like", "ldr")  # minutes for the two fits to a wide matrix
RIVALS = ("low_rank", "pivoted", "tensor_train", "shuffle")  # of btt, in no more parameters than it has
SAMPLES = 256  # of which 64 positions each are looked at: many times the widest layer's inputs


@dataclasses.dataclass(frozen=True)
class Cell:
    """A family on a layer's matrix, in so many parameters."""

    network: str
    layer: str
    transform: str
    share: float  # of the matrix's entries
    within: str = ""  # the family whose parameters at that share are the ceiling


@dataclasses.dataclass(frozen=True)
class Seen:
    """A layer's matrix, what it sees, and how often it is applied to one input of the network."""

    matrix: Tensor  # (out, in · taps), float64
    metric: Metric
    positions: int
    area: int


def cells() -> list[Cell]:
    """All families on all layers, network by network; the slow ones at the end."""
    names = [name for name in us.list_transforms() if name != "dense"]
    families = [(name, "") for name in names] + [(name, "btt") for name in RIVALS]
    found = [
        Cell(network, layer, name, share, within)
        for network, layers in LAYERS.items()
        for layer in layers
        for name, within in families
        for share in SHARES
    ]
    return sorted(found, key=lambda cell: cell.transform in SLOW)


def key(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a measured cell is found by."""
    return tuple(cell[field.name] for field in dataclasses.fields(Cell))


def look(network: str, folders: Folders) -> dict[str, Seen]:
    """The layers of a trained network, by path."""
    subject = make(network, folders)
    layers = list(LAYERS[network])
    calibration = us.calibrate(
        subject.model, subject.batches, include=layers, samples=SAMPLES, gradients=False
    )
    found = {}
    one = (
        {key: value[:1] for key, value in subject.example.items()} if network == "minilm" else subject.example
    )
    for site in us.sites(subject.model, one, include=layers, meta=False).chosen:
        matrix = the_dense_map(subject.model.get_submodule(site.path)).matrix.detach().double()
        metrics, positions = calibration.metrics(site.path), site.positions
        assert metrics is not None
        assert positions is not None
        found[site.path] = Seen(matrix, metrics[0], sum(positions), site.area)
    return found


def measured(cell: Cell, seen: Seen) -> dict[str, Any]:
    """One cell: what the family costs there, and what its two fits lose."""
    kind = us.get_transform(cell.transform)
    out_features, in_features = seen.matrix.shape
    shape = (in_features, out_features)
    told = {**dataclasses.asdict(cell), "in_features": in_features, "out_features": out_features}
    ceiling = int(cell.share * seen.matrix.numel())
    knob = largest(kind, shape, ceiling)
    if cell.within:
        first = us.get_transform(cell.within)
        reached = largest(first, shape, ceiling)
        knob = largest(kind, shape, first.params(*shape, reached)) if reached else None
    if knob is None:
        return {**told, "refused": f"no knob within {cell.share:.0%} of the entries"}
    started = time.monotonic()
    plain, aware = (kind(*shape, knob, dtype=torch.float64) for _ in range(2))
    plain.fit_(seen.matrix)
    aware.fit_(seen.matrix, seen.metric)
    errors = {
        name: relative(fitted.matrix().detach() - seen.matrix, seen)
        for name, fitted in (("plain", plain), ("aware", aware))
    }
    return {
        **told,
        "knob": knob,
        "params": kind.params(*shape, knob),
        "positions": seen.positions,
        "mult_adds": kind.executed_mult_adds(*shape, knob, seen.positions, seen.area) / seen.positions,
        "ideal_mult_adds": kind.executed_mult_adds(*shape, knob, 1 << MANY_BITS, seen.area) >> MANY_BITS,
        "plain": errors["plain"],
        "aware": errors["aware"],
        "took": round(time.monotonic() - started, 2),
    }


def largest(kind: type[us.Transform], shape: tuple[int, int], params: int) -> int | None:
    """The largest knob within so many parameters; None where even the first needs more."""
    within = [knob for knob in kind.knobs(*shape) if kind.params(*shape, knob) <= params]
    return within[-1] if within else None


def relative(error: Tensor, seen: Seen) -> dict[str, float]:
    """The norm of an error as a share of the matrix's: as it is, and in the metric of the data."""
    weighted = float(seen.metric.loss(error) / seen.metric.loss(seen.matrix)) ** 0.5
    return {"entries": round(float(error.norm() / seen.matrix.norm()), 5), "outputs": round(weighted, 5)}


def main() -> None:
    parser = argparse.ArgumentParser(description="How near each family comes to trained matrices.")
    for name in ("weights", "cifar", "imagenet", "texts"):
        parser.add_argument(f"--{name}", type=Path, default=Path(name))
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/families.json")
    parser.add_argument("--draw", action="store_true", help="only fill docs/choose.md from what was saved")
    given = parser.parse_args()
    torch.set_num_threads(1)
    file = RESULTS / "families.json"
    done: list[dict[str, Any]] = json.loads(file.read_text())["cells"] if file.exists() else []
    if given.draw:
        families_page.fill(done)
        return
    folders = Folders(given.weights, given.cifar, given.imagenet, given.texts)
    seen = functools.cache(functools.partial(look, folders=folders))
    held = {key(cell) for cell in done}
    for cell in cells():
        if dataclasses.astuple(cell) in held:
            continue
        done.append(measured(cell, seen(cell.network)[cell.layer]))
        print(done[-1], flush=True)
        if given.write:
            write("families", {"samples": SAMPLES, "cells": done})
    print("\n".join(families_page.errors(done, "aware", "outputs")))


if __name__ == "__main__":
    main()
