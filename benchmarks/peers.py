"""What others offer for the same parameters: pruning, decomposition, a narrower network from scratch."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

import understudy as us

Size = Callable[[nn.Module], int]


class PeerError(Exception):
    """A peer does not know how to make this network small."""


def pruned(model: nn.Module, example: tuple[int, ...], budget: int, size: Size) -> nn.Module:
    """Torch-Pruning 1.6: channels of least magnitude, over the whole network, down to such a size."""
    import torch_pruning

    def at(ratio: float) -> nn.Module:
        made = copy.deepcopy(model).eval()
        last = [module for module in made.modules() if isinstance(module, nn.Linear)][-1]
        pruner = torch_pruning.pruner.MagnitudePruner(
            made,
            torch.randn(example),
            importance=torch_pruning.importance.MagnitudeImportance(p=2),
            global_pruning=True,
            pruning_ratio=ratio,
            ignored_layers=[last],
        )
        try:
            pruner.step()
        except IndexError as error:  # shortcuts that pad channels with zeros
            raise PeerError(f"Torch-Pruning 1.6 cannot prune it: {error}") from error
        return made

    return least(at, budget, size)


def decomposed(model: nn.Module, params: int) -> nn.Module:
    """tensorly-torch 0.5: Tucker factors, over the channels, of every k × k convolution's weight."""
    import tltorch

    def at(share: float) -> nn.Module:
        made = copy.deepcopy(model).eval()
        for path, layer in list(made.named_modules()):
            if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1):
                factored = tltorch.FactorizedConv.from_conv(
                    layer, rank=1 - share, factorization="tucker", fixed_rank_modes="spatial"
                )
                made.set_submodule(path, factored)
        return made

    return least(at, params)


def narrower(name: str, params: int) -> nn.Module:
    """The same network with fewer channels, not trained yet."""
    kind, depth, width = name.split("_")

    def at(share: float) -> nn.Module:
        return us.create_model(f"{kind}_{depth}_{int(width) * (1 - share):.3f}".rstrip("0").rstrip("."))

    return least(at, params)


def params_of(model: nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def least(make: Callable[[float], nn.Module], budget: int, size: Size = params_of) -> nn.Module:
    """The network of the least share taken away that is of at most such a size, to a thousandth."""
    low, high = 0.0, 0.999
    found = make(high)
    for _ in range(10):
        middle = (low + high) / 2
        made = make(middle)
        if size(made) <= budget:
            found, high = made, middle
        else:
            low = middle
    return found
