"""Residual networks, activation after addition: bottlenecks for ImageNet, basic blocks for CIFAR.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", 2016. Parameter names are those
of torchvision and of the usual public CIFAR weights, so that both load as they are.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from .wide_resnet import convolution, scaled


class Bottleneck(nn.Module):
    """y = ReLU(s(x) + 1×1 ∘ 3×3 ∘ 1×1 (x)), BN after each; s(x) = x, or BN of a 1×1 convolution."""

    def __init__(self, in_channels: int, inner_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = convolution(in_channels, inner_channels, 1)
        self.bn1 = nn.BatchNorm2d(inner_channels)
        self.conv2 = convolution(inner_channels, inner_channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(inner_channels)
        self.conv3 = convolution(inner_channels, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                convolution(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, H, W) → (B, out, H / stride, W / stride)."""
        kept: Tensor = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(kept + y)


class BottleneckResNet(nn.Module):
    """Four stages of bottlenecks with 256, 512, 1024, 2048 channels, inside each 64, ..., 512 × width.

    The defaults are WRN-50-2, torchvision's `wide_resnet50_2`; `width=1` is ResNet-50. The width may be a
    fraction; below 1 all channels shrink, those between the blocks and the stem's as well.
    """

    def __init__(
        self, blocks: tuple[int, int, int, int] = (3, 4, 6, 3), width: float = 2, classes: int = 1000
    ) -> None:
        super().__init__()
        if len(blocks) != 4 or min(blocks) < 1:
            raise ValueError(f"blocks {blocks} are not four whole numbers from 1 up")
        if width <= 0:
            raise ValueError(f"width {width} is not above 0")
        inner = [scaled(channels, width) for channels in (64, 128, 256, 512)]
        outer = [scaled(channels, min(1, width)) for channels in (64, 256, 512, 1024, 2048)]
        self.conv1 = convolution(3, outer[0], 7, stride=2)
        self.bn1 = nn.BatchNorm2d(outer[0])
        self.layer1 = _bottlenecks(outer[0], inner[0], outer[1], blocks[0], stride=1)
        self.layer2 = _bottlenecks(outer[1], inner[1], outer[2], blocks[1], stride=2)
        self.layer3 = _bottlenecks(outer[2], inner[2], outer[3], blocks[2], stride=2)
        self.layer4 = _bottlenecks(outer[3], inner[3], outer[4], blocks[3], stride=2)
        self.fc = nn.Linear(outer[4], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, classes)."""
        x = F.relu(self.bn1(self.conv1(x)))  # (B, 64, H/2, W/2)
        x = F.max_pool2d(x, 3, stride=2, padding=1)  # (B, 64, H/4, W/4)
        x = self.layer1(x)  # (B, 256, H/4, W/4)
        x = self.layer2(x)  # (B, 512, H/8, W/8)
        x = self.layer3(x)  # (B, 1024, H/16, W/16)
        x = self.layer4(x)  # (B, 2048, H/32, W/32)
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def _bottlenecks(
    in_channels: int, inner_channels: int, out_channels: int, blocks: int, stride: int
) -> nn.Sequential:
    first = Bottleneck(in_channels, inner_channels, out_channels, stride)
    rest = (Bottleneck(out_channels, inner_channels, out_channels, 1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)


class BasicBlock(nn.Module):
    """y = ReLU(s(x) + 3×3 ∘ 3×3 (x)), BN after each; s(x) subsamples and adds channels of zeros."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.added_channels = out_channels - in_channels
        self.conv1 = convolution(in_channels, out_channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = convolution(out_channels, out_channels, 3)
        self.bn2 = nn.BatchNorm2d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, H, W) → (B, out, H / stride, W / stride)."""
        y: Tensor = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(self._shortcut(x) + y)

    def _shortcut(self, x: Tensor) -> Tensor:
        if self.stride == 1 and self.added_channels == 0:
            return x
        before = self.added_channels // 2
        after = self.added_channels - before
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, after))


class CifarResNet(nn.Module):
    """A stem, three stages of (depth − 2) / 6 basic blocks with 16, 32 and 64 channels, a linear head.

    A shortcut has no parameters: where the size halves it takes every second pixel, and puts half of the
    missing channels before its own and half after them, as zeros.
    """

    def __init__(self, depth: int, classes: int = 10) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"depth {depth} is not 6n + 2 with n ≥ 1: legal are 8, 14, 20, 26, 32, ...")
        blocks = (depth - 2) // 6
        self.conv1 = convolution(3, 16, 3)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _basic_blocks(16, 16, blocks, stride=1)
        self.layer2 = _basic_blocks(16, 32, blocks, stride=2)
        self.layer3 = _basic_blocks(32, 64, blocks, stride=2)
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) → (B, classes)."""
        x = F.relu(self.bn1(self.conv1(x)))  # (B, 16, H, W)
        x = self.layer1(x)  # (B, 16, H, W)
        x = self.layer2(x)  # (B, 32, H/2, W/2)
        x = self.layer3(x)  # (B, 64, H/4, W/4)
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits


def _basic_blocks(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(BasicBlock(out_channels, out_channels, 1) for _ in range(blocks - 1)))
