"""Networks without weights: the structure, the shapes and the sharing, on the meta device."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn


def meta_copy(model: nn.Module) -> nn.Module:
    """A deep copy whose tensors are all on the meta device: the structure and the sharing, no memory."""
    return copy.deepcopy(model, meta_tensors(model))


def meta_tensors(model: nn.Module) -> dict[int, Any]:
    """What a deep copy takes for each tensor of the network, by identity, to be on the meta device."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None and id(parameter) not in memo:
                memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        plain = [value for value in vars(module).values() if isinstance(value, Tensor)]
        for tensor in (*module._buffers.values(), *plain):
            if tensor is not None and id(tensor) not in memo:
                memo[id(tensor)] = tensor.detach().to("meta")
    return memo
