"""The DARTS evaluation network for 32 × 32 images: a stack of searched cells, genotype DARTS_V2.

Liu, Simonyan and Yang, "DARTS: Differentiable Architecture Search", 2019.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .auxiliary import AuxiliaryHead
from .drop_path import DropPath

Primitive = Literal["sep_conv_3x3", "dil_conv_3x3", "max_pool_3x3", "skip_connect"]


@dataclass(frozen=True)
class Edge:
    """An operation and the state it reads: 0 and 1 are the cell's two inputs, 2 is its first node."""

    primitive: Primitive
    source: int


@dataclass(frozen=True)
class CellGenotype:
    """Each node is the sum of its two edges; the nodes listed in `concat` are the cell's output."""

    nodes: tuple[tuple[Edge, Edge], ...]
    concat: tuple[int, ...]


@dataclass(frozen=True)
class Genotype:
    """The two cells a network is made of: `normal` keeps the size, `reduce` halves it."""

    normal: CellGenotype
    reduce: CellGenotype


DARTS_V2 = Genotype(
    normal=CellGenotype(
        nodes=(
            (Edge("sep_conv_3x3", 0), Edge("sep_conv_3x3", 1)),
            (Edge("sep_conv_3x3", 0), Edge("sep_conv_3x3", 1)),
            (Edge("sep_conv_3x3", 1), Edge("skip_connect", 0)),
            (Edge("skip_connect", 0), Edge("dil_conv_3x3", 2)),
        ),
        concat=(2, 3, 4, 5),
    ),
    reduce=CellGenotype(
        nodes=(
            (Edge("max_pool_3x3", 0), Edge("max_pool_3x3", 1)),
            (Edge("skip_connect", 2), Edge("max_pool_3x3", 1)),
            (Edge("max_pool_3x3", 0), Edge("skip_connect", 2)),
            (Edge("skip_connect", 2), Edge("max_pool_3x3", 1)),
        ),
        concat=(2, 3, 4, 5),
    ),
)


class ReluConvNorm(nn.Sequential):
    """BN(1×1(ReLU(x))): sets the number of channels, keeps the size."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.ReLU(), nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.BatchNorm2d(out_channels)
        )


class DepthwiseSeparable(nn.Sequential):
    """BN(1×1(3×3 depthwise(ReLU(x)))), the 3×3 dilated and strided as asked."""

    def __init__(self, channels: int, stride: int, dilation: int = 1) -> None:
        super().__init__(
            nn.ReLU(),
            # padding = dilation keeps the size at stride 1
            nn.Conv2d(channels, channels, 3, stride, dilation, dilation, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )


class FactorizedReduction(nn.Module):
    """BN([A x(even pixels), B x(odd pixels)]) after a ReLU: halves the size with two 1×1 convolutions."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        half = out_channels // 2
        self.conv_even = nn.Conv2d(in_channels, half, 1, stride=2, bias=False)
        self.conv_odd = nn.Conv2d(in_channels, out_channels - half, 1, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, H, W) → (B, out, H/2, W/2)."""
        x = F.relu(x)
        halves = torch.cat([self.conv_even(x), self.conv_odd(x[:, :, 1:, 1:])], dim=1)
        y: Tensor = self.norm(halves)
        return y


def _operation(primitive: Primitive, channels: int, stride: int) -> nn.Module:
    if primitive == "sep_conv_3x3":
        return nn.Sequential(DepthwiseSeparable(channels, stride), DepthwiseSeparable(channels, stride=1))
    if primitive == "dil_conv_3x3":
        return DepthwiseSeparable(channels, stride, dilation=2)
    if primitive == "max_pool_3x3":
        return nn.MaxPool2d(3, stride=stride, padding=1)
    return nn.Identity() if stride == 1 else FactorizedReduction(channels, channels)


class DartsCell(nn.Module):
    """A small directed graph: two inputs, nodes that sum two operations each, concatenated nodes out."""

    def __init__(
        self,
        genotype: CellGenotype,
        channels_before: int,
        channels_previous: int,
        channels: int,
        reduction: bool,
        reduction_previous: bool,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        # After a reduction the older of the two inputs is still twice as large as the newer one.
        self.preprocess0 = (
            FactorizedReduction(channels_before, channels)
            if reduction_previous
            else ReluConvNorm(channels_before, channels)
        )
        self.preprocess1 = ReluConvNorm(channels_previous, channels)
        self.genotype = genotype
        self.operations = nn.ModuleList(
            _operation(edge.primitive, channels, stride=2 if reduction and edge.source < 2 else 1)
            for node in genotype.nodes
            for edge in node
        )
        self.drop_path = DropPath(drop_path)
        self.out_channels = len(genotype.concat) * channels

    def forward(self, before: Tensor, previous: Tensor) -> Tensor:
        """Outputs of the last two cells → (B, out_channels, H, W), or half that size in a reduction."""
        states: list[Tensor] = [self.preprocess0(before), self.preprocess1(previous)]
        operations = iter(self.operations)
        for first, second in self.genotype.nodes:
            left = self._run(next(operations), states[first.source])
            right = self._run(next(operations), states[second.source])
            states.append(left + right)  # (B, channels, H, W)
        return torch.cat([states[index] for index in self.genotype.concat], dim=1)

    def _run(self, operation: nn.Module, x: Tensor) -> Tensor:
        """The operation, at times dropped; an identity never is, so it carries what a sample has left."""
        y: Tensor = operation(x)
        return y if isinstance(operation, nn.Identity) else self.drop_path(y)


def _auxiliary_head(in_channels: int, classes: int) -> AuxiliaryHead:
    """On 8 × 8 maps."""
    return AuxiliaryHead(
        nn.ReLU(),
        nn.AvgPool2d(5, stride=3),  # (B, in, 2, 2)
        nn.Conv2d(in_channels, 128, 1, bias=False),
        nn.BatchNorm2d(128),
        nn.ReLU(),
        nn.Conv2d(128, 768, 2, bias=False),  # (B, 768, 1, 1)
        nn.BatchNorm2d(768),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(768, classes),
    )


class Darts(nn.Module):
    """A stem, then cells that read the last two outputs; the size halves at 1/3 and 2/3 of the depth."""

    def __init__(
        self,
        channels: int = 36,
        cells: int = 20,
        classes: int = 10,
        auxiliary: bool = False,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        if channels < 1:
            raise ValueError(f"channels {channels} is not a whole number from 1 up")
        if cells < 3:
            raise ValueError(f"cells {cells} is not a whole number from 3 up: two of them are reductions")
        reductions = (cells // 3, 2 * cells // 3)
        before = previous = 3 * channels
        self.stem = nn.Sequential(nn.Conv2d(3, previous, 3, padding=1, bias=False), nn.BatchNorm2d(previous))
        self.cells = nn.ModuleList()
        self.auxiliary_index = reductions[1]
        self.auxiliary: AuxiliaryHead | None = None
        for index in range(cells):
            reduction = index in reductions
            if reduction:
                channels *= 2
            cell = DartsCell(
                DARTS_V2.reduce if reduction else DARTS_V2.normal,
                before,
                previous,
                channels,
                reduction,
                reduction_previous=index - 1 in reductions,
                drop_path=drop_path,
            )
            self.cells.append(cell)
            before, previous = previous, cell.out_channels
            if auxiliary and index == self.auxiliary_index:
                self.auxiliary = _auxiliary_head(previous, classes)
        self.head = nn.Linear(previous, classes)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(B, 3, H, W) → (B, classes), twice in training with the auxiliary head; H, W multiples of 4."""
        if x.shape[-2] % 4 or x.shape[-1] % 4:
            raise ValueError(f"image size {x.shape[-2]} × {x.shape[-1]} is not a multiple of 4 × 4")
        auxiliary_logits: Tensor | None = None
        before = previous = self.stem(x)  # (B, 3 channels, H, W)
        for index, cell in enumerate(self.cells):
            before, previous = previous, cell(before, previous)
            if self.training and self.auxiliary is not None and index == self.auxiliary_index:
                auxiliary_logits = self.auxiliary(previous)
        logits: Tensor = self.head(previous.mean(dim=(2, 3)))  # (B, 16 channels) → (B, classes)
        return logits if auxiliary_logits is None else (logits, auxiliary_logits)
