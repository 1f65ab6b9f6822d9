"""How the kernels of a network lie in memory."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)


def lay_channels_last_(network: Network) -> Network:
    """Let the channels of all kernels of images lie side by side; what they compute keeps that layout."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def lay_contiguous_(network: Network) -> Network:
    """Let all kernels lie in memory as they are indexed, the usual way."""
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return network


def lies_channels_last(tensor: Tensor) -> bool:
    """Whether the channels of kernels lie side by side, in a way that is not the usual one too."""
    if tensor.dim() != 4 or tensor.is_contiguous():
        return False
    return tensor.is_contiguous(memory_format=torch.channels_last)
