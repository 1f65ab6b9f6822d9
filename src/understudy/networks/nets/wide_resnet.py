"""Wide residual networks for 32 × 32 images, activation before convolution.

Zagoruyko and Komodakis, "Wide Residual Networks", 2016.
"""

import torch.nn.functional as F
from torch import Tensor, nn


def convolution(in_channels: int, out_channels: int, kernel_size: int, stride: int = 1) -> nn.Conv2d:
    """A k × k convolution without bias that keeps the size at stride 1; weights ~ N(0, 2 / (k² out))."""
    layer = nn.Conv2d(
        in_channels, out_channels, kernel_size, stride=stride, padding=kernel_size // 2, bias=False
    )
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def is_legal_depth(depth: int) -> bool:
    """Whether three stages of n blocks, two convolutions each, make this depth: 6n + 4, n ≥ 1."""
    return depth >= 10 and depth % 6 == 4


class WideBlock(nn.Module):
    """y = s(x) + conv2(a2(conv1(a1(x)))), a = ReLU ∘ BN; s(x) = x, or a 1×1 convolution of a1(x)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = convolution(in_channels, out_channels, 3, stride)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = convolution(out_channels, out_channels, 3)
        self.shortcut: nn.Conv2d | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = convolution(in_channels, out_channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, H, W) → (B, out, H / stride, W / stride)."""
        activated = F.relu(self.norm1(x))
        kept: Tensor = x if self.shortcut is None else self.shortcut(activated)
        y: Tensor = self.conv1(activated)
        y = self.conv2(F.relu(self.norm2(y)))
        return kept + y


def scaled(channels: int, width: float) -> int:
    """The nearest whole number of channels, at least eight.

    With fewer, the backward pass of a strided 1×1 convolution in channels-last layout writes past its
    memory on CPUs (seen in torch 2.13).
    """
    return max(8, round(channels * width))


class WideResNet(nn.Module):
    """A stem, three stages of (depth − 4) / 6 blocks with 16, 32 and 64 × width channels, a linear head.

    The width may be a fraction; below 1 the stem's 16 channels shrink as well.
    """

    def __init__(self, depth: int, width: float, classes: int = 10) -> None:
        super().__init__()
        if not is_legal_depth(depth):
            raise ValueError(f"depth {depth} is not 6n + 4 with n ≥ 1: legal are 10, 16, 22, 28, 34, 40, ...")
        if width <= 0:
            raise ValueError(f"width {width} is not above 0")
        blocks = (depth - 4) // 6
        stem = scaled(16, min(1, width))
        first, second, third = (scaled(channels, width) for channels in (16, 32, 64))
        self.stem = convolution(3, stem, 3)
        self.stage1 = _stage(stem, first, blocks, stride=1)
        self.stage2 = _stage(first, second, blocks, stride=2)
        self.stage3 = _stage(second, third, blocks, stride=2)
        self.norm = nn.BatchNorm2d(third)
        self.head = nn.Linear(third, classes)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, classes)."""
        x = self.stem(x)  # (B, 16, H, W)
        x = self.stage1(x)  # (B, 16 width, H, W)
        x = self.stage2(x)  # (B, 32 width, H/2, W/2)
        x = self.stage3(x)  # (B, 64 width, H/4, W/4)
        x = F.relu(self.norm(x)).mean(dim=(2, 3))  # (B, 64 width)
        logits: Tensor = self.head(x)
        return logits


def _stage(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    """The first block changes the channels and the size, the others keep both."""
    first = WideBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(WideBlock(out_channels, out_channels, 1) for _ in range(blocks - 1)))
