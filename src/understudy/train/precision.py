"""In which numbers and in which layout a network runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from understudy.layers import Conv

if TYPE_CHECKING:
    from .recipe import Recipe

Precision = Literal["float32", "bfloat16", "float16"]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def autocast(recipe: Recipe, device: torch.device) -> torch.autocast:
    """The recipe's precision, as a block to run a network in."""
    return torch.autocast(device.type, _DTYPES[recipe.precision], enabled=recipe.precision != "float32")


def in_layout(x: Any, *, channels_last: bool) -> Any:
    """Images in channels-last where asked; anything else as it is."""
    if channels_last and isinstance(x, Tensor) and x.dim() == 4:
        return x.to(memory_format=torch.channels_last)
    return x


def may_be_channels_last(network: nn.Module, device: torch.device) -> bool:
    """Whether training in this layout is safe.

    On a CPU the backward pass of a strided 1×1 convolution with fewer than 8 input channels writes beyond its
    memory in channels-last (torch 2.13).
    """
    return device.type != "cpu" or not any(
        isinstance(module, nn.Conv2d | Conv)
        and module.kernel_size == (1, 1)
        and module.stride != (1, 1)
        and module.in_channels < 8
        for module in network.modules()
    )
