"""What others offer for the same parameters: pruning, decomposition, a narrower network from scratch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import nn

import understudy as us

Size = Callable[[nn.Module], int]


class PeerError(Exception):
    """A peer does not know how to make this network so small."""


def pruned(model: nn.Module, example: tuple[int, ...], budget: int, size: Size) -> nn.Module:
    """Torch-Pruning 1.6: channels of least magnitude, over the whole network, down to such a size.

    It cannot follow shortcuts that pad channels with zeros: there the channels inside the blocks are pruned.
    """
    import torch_pruning

    def at(ratio: float, is_inside: bool) -> nn.Module:
        made = copy.deepcopy(model).eval()
        last = [module for module in made.modules() if isinstance(module, nn.Linear)][-1]
        pruner = torch_pruning.pruner.MagnitudePruner(
            made,
            torch.randn(example),
            importance=torch_pruning.importance.MagnitudeImportance(p=2),
            global_pruning=True,
            pruning_ratio=ratio,
            ignored_layers=[last, *(_convolutions_of_shortcuts(made) if is_inside else ())],
        )
        pruner.step()
        return made

    try:
        return least(lambda ratio: at(ratio, is_inside=False), budget, size)
    except IndexError:
        return least(lambda ratio: at(ratio, is_inside=True), budget, size)


def _convolutions_of_shortcuts(model: nn.Module) -> Iterator[nn.Module]:
    """Those whose outputs a shortcut is added to: all but the first ones of a block's several."""
    for block in model.modules():
        found = [layer for layer in block.children() if isinstance(layer, nn.Conv2d)]
        yield from found[1:] if len(found) > 1 else found


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
    found = smallest = make(high)
    for _ in range(10):
        middle = (low + high) / 2
        made = make(middle)
        smallest = min(smallest, made, key=size)
        if size(made) <= budget:
            found, high = made, middle
        else:
            low = middle
    if size(found) > budget:
        raise PeerError(f"the smallest that was found has {size(smallest):,}, not {budget:,}")
    return found
