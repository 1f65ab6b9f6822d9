"""A student as plain PyTorch modules, chosen for a batch or for the runtime of a file."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from understudy._util.guard import the_network
from understudy._util.modules import adopt, become_, first_input
from understudy.counting.trace import Example, as_inputs, call_on
from understudy.layers.attention import Attention
from understudy.layers.choosing import Purpose
from understudy.layers.layer import stand_ins
from understudy.layers.lowering import lowered
from understudy.layers.spread import Spread

from .substitute import exchange, settle_
from .wrappers import unwrapped


def lower(model: nn.Module, example: Example | None = None, *, fixed: bool = False) -> nn.Module:
    """A copy of `model` in which every stand-in is plain modules with exactly its parameters: same outputs.

    A stage of a stand-in becomes a convolution, an nn.Linear, a batched product or a reshape. What has no
    such stages becomes one product with a matrix that is computed from the parameters by plain operations:
    `hashed`, `acdc`, `block_circulant`, `toeplitz_like`, `ldr` and `low_rank_sparse`, and the k×k kernels of
    other families whose factors part the taps of a channel. Only a layer whose weight another module reads
    stays.

    With an `example`, layers take the order that is quickest for that many positions by the model of costs,
    the computed matrix among them; without, one whose stages are the parameters.

    With `fixed`, what follows from parameters is made now and held instead of them, wherever it has at most
    four times as many entries: quantisers know the weights that layers hold, not those that they compute.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5))
    >>> [type(part).__name__ for part in us.lower(student).stage1[0].conv1]
    ['Conv2d', 'Conv2d']
    """
    return lowered_for(model, Purpose(fixed=fixed), example)


def lowered_for(model: nn.Module, purpose: Purpose, example: Example | None = None) -> nn.Module:
    """A copy of `model` in plain modules for a purpose."""
    model = unwrapped(the_network(model, copied=True))
    read = {
        id(module.out_proj)
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention) and not isinstance(module, Attention)
    }
    positions = {} if example is None else _positions(model, example)
    made = {
        id(layer): adopt(layer, lowered(layer, purpose, positions.get(path)))
        for path, layer in stand_ins(model)
        if id(layer) not in read
    }
    student = exchange(model, made)
    for module in list(student.modules()):
        if isinstance(module, Spread):
            become_(module, module.lowered())
    return settle_(student)


def _positions(model: nn.Module, example: Example) -> dict[str, int]:
    """How many vectors every stand-in meets in its first call on an example."""
    found: dict[str, int] = {}
    if not any(stand_ins(model)):
        return found
    network = copy.deepcopy(model).eval()

    def note(path: str) -> Callable[..., None]:
        def hook(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = first_input(args, kwargs)
            if isinstance(given, Tensor):
                found.setdefault(path, layer.positions(given))

        return hook

    for path, layer in stand_ins(network):
        layer.register_forward_pre_hook(note(path), with_kwargs=True)
    with torch.no_grad():
        call_on(network, as_inputs(example, network))
    return found
