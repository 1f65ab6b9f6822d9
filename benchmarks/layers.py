"""Speed of one pointwise layer with every transform against nn.Conv2d, forward and training step.

    python benchmarks/layers.py [--repeats 15] [--write]

The sizes are the three stages of WRN-28-10 at batch 32. Everything of one size and layout runs interleaved;
only ratios within it mean something. "grouped" is the same map as `shuffle` made of grouped nn.Conv2d layers
and a channel shuffle, with as many groups.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from measure import best_of, write
from understudy._util.text_tables import table
from understudy.layers import Conv
from understudy.layers.geometry import Geometry
from understudy.transforms import known_transforms
from understudy.transforms.shuffle import bottleneck

SIZES = ((160, 32), (320, 16), (640, 8))  # channels, image side
BATCH = 32
TENSOR_TRAIN_RANK = {160: 18, 320: 20, 640: 28}  # 0.44 of the smaller neighbouring dimension, as published
SCALE = 0.1


class GroupedReference(nn.Module):
    """Grouped 1×1 convolution, channel shuffle, grouped 1×1 convolution, as nn.Conv2d layers."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.first = nn.Conv2d(channels, bottleneck(channels), 1, groups=groups, bias=False)
        self.second = nn.Conv2d(bottleneck(channels), channels, 1, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (batch, channels, height, width)."""
        hidden: Tensor = self.first(x)
        batch, channels, height, width = hidden.shape
        hidden = hidden.reshape(batch, self.groups, channels // self.groups, height, width).transpose(1, 2)
        out: Tensor = self.second(hidden.reshape(batch, channels, height, width))
        return out


def layers_of(channels: int) -> dict[str, nn.Module]:
    made: dict[str, nn.Module] = {"nn.Conv2d": nn.Conv2d(channels, channels, 1, bias=False)}
    for name, transform in known_transforms().items():
        knob = transform.knob_at(channels, channels, SCALE)
        if name == "tensor_train":
            knob = TENSOR_TRAIN_RANK[channels]
        if name == "acdc":
            knob = 12
        if name == "shuffle":
            knob = transform.nearest_knob(channels, channels, 8)
            made["grouped"] = GroupedReference(channels, knob)
        made[name] = Conv(transform(channels, channels, knob), Geometry.pointwise(2))
    return made


def step(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    """A training step: forward, backward to the input and the weights."""
    gradient = torch.ones_like(layer(x))

    def run() -> None:
        layer(x).backward(gradient)
        x.grad = None
        layer.zero_grad()

    return run


def measure(channels: int, side: int, layout: str, repeats: int) -> dict[str, Any]:
    layers = layers_of(channels)
    x = torch.randn(BATCH, channels, side, side)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
        for layer in layers.values():
            layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()

    def forward(layer: nn.Module) -> Callable[[], object]:
        return lambda: layer(x)

    with torch.no_grad():
        forward_ms = best_of({name: forward(layer) for name, layer in layers.items()}, repeats)
    step_ms = best_of({name: step(layer, trained) for name, layer in layers.items()}, repeats)
    knobs = {name: layer.transform.knob for name, layer in layers.items() if isinstance(layer, Conv)}
    return {
        "channels": channels,
        "side": side,
        "layout": layout,
        "batch": BATCH,
        "layers": {
            name: {
                "knob": knobs.get(name),
                "params": sum(p.numel() for p in layer.parameters()),
                "forward_ms": round(forward_ms[name], 3),
                "step_ms": round(step_ms[name], 3),
                "forward_speedup": round(forward_ms["nn.Conv2d"] / forward_ms[name], 2),
                "step_speedup": round(step_ms["nn.Conv2d"] / step_ms[name], 2),
            }
            for name, layer in layers.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/layers.json")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    cases = []
    for channels, side in SIZES:
        for layout in ("contiguous", "channels_last"):
            case = measure(channels, side, layout, arguments.repeats)
            cases.append(case)
            rows = [
                (
                    name,
                    str(cell["knob"] or ""),
                    f"{cell['params']:,}",
                    f"{cell['forward_ms']:.2f}",
                    f"{cell['forward_speedup']:.2f}×",
                    f"{cell['step_ms']:.2f}",
                    f"{cell['step_speedup']:.2f}×",
                )
                for name, cell in case["layers"].items()
            ]
            columns = ["layer", ">knob", ">parameters", ">forward ms", ">speed-up", ">step ms", ">speed-up"]
            title = f"{channels} channels, {side}×{side}, batch {BATCH}, {layout}"
            Console(width=110).print(table(columns, rows, title=title))
    if arguments.write:
        print(write("layers", {"cases": cases}))


if __name__ == "__main__":
    main()
