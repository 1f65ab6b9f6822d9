"""The quickest way of every layer on this machine, measured on the inputs that it really meets."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from understudy._util.guard import the_amount, the_network
from understudy._util.layouts import lay_channels_last_
from understudy._util.modules import first_input
from understudy._util.timing import time_in_turns
from understudy.counting.trace import Example
from understudy.layers.execution import Execution
from understudy.layers.layer import Layer, stand_ins
from understudy.students.wrappers import unwrapped
from understudy.transforms.orders import FORMED, convolving

from .graph import outputs
from .speed import forward_pass

_ROUNDS = 5
_WORSE = 0.95  # of the time by itself: what is no quicker than that is noise
_MOST = 4.0  # an order with more times the mult-adds of the cheapest is not tried


def tune(student: nn.Module, example: Example, *, seconds: float = 0.5) -> nn.Module:
    """A copy of `student` whose layers run in inference as was quickest on this machine for `example`.

    First the network as it is takes turns with a copy in channels-last, then every order of every layer on
    the layer's own input, each for at most about `seconds`. What wins by 5 % is kept: the layout of all
    kernels, and as `layer.execution.inference` the order. Both are saved with the student; training goes on
    in the orders of before.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5))
    >>> tuned = us.tune(student, (1, 3, 32, 32), seconds=0.01)
    """
    the_amount("seconds", seconds, above=True)
    tuned = copy.deepcopy(unwrapped(the_network(student, "student", copied=True, run=True)))
    training = [name for name, module in tuned.named_modules() if module.training]
    tuned = _laid_out(tuned.eval(), example, seconds)
    inputs = _inputs(tuned, example)
    chosen: dict[tuple[object, ...], str | None] = {}
    for path, layer in stand_ins(tuned):
        if path not in inputs:
            continue
        x = inputs[path]
        alike = _likeness(layer, x)
        if alike not in chosen:
            chosen[alike] = _quickest(layer, x, seconds)
        layer.execution = dataclasses.replace(layer.execution, inference=chosen[alike])
    for name in training:
        tuned.get_submodule(name).training = True
    return tuned


def _laid_out(network: nn.Module, example: Example, seconds: float) -> nn.Module:
    """The network, or a copy whose kernels lie channels-last, where that is quicker."""
    if not any(parameter.dim() == 4 for parameter in network.parameters()):
        return network
    other = lay_channels_last_(copy.deepcopy(network))
    calls = {"as it is": forward_pass(network, example), "channels-last": forward_pass(other, example)}
    timings = time_in_turns(calls, rounds=_ROUNDS, seconds=seconds, wait=_wait_for(network))
    return other if timings["channels-last"].best < _WORSE * timings["as it is"].best else network


def _wait_for(network: nn.Module) -> Callable[[], None]:
    """Until a device that works on its own is done."""
    on_gpu = any(parameter.is_cuda for parameter in network.parameters())
    return torch.cuda.synchronize if on_gpu else lambda: None


def _inputs(network: nn.Module, example: Example) -> dict[str, Tensor]:
    """What every stand-in is given first in one pass."""
    found: dict[str, Tensor] = {}

    def note(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = first_input(args, kwargs)
            if isinstance(given, Tensor):
                found.setdefault(path, given.detach().clone(memory_format=torch.preserve_format))

        return hook

    handles = [
        layer.register_forward_pre_hook(note(path), with_kwargs=True) for path, layer in stand_ins(network)
    ]
    try:
        outputs(network, example)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _likeness(layer: Layer, x: Tensor) -> tuple[object, ...]:
    """Layers that agree in this are measured once."""
    transform = layer.transform
    shape = (transform.in_features, transform.out_features, transform.knob, layer.area, str(layer))
    return type(layer), type(transform), *shape, layer.execution, tuple(x.shape), x.stride()


def _quickest(layer: Layer, x: Tensor, seconds: float) -> str | None:
    """The order that runs this layer in the least time, or None where it is no slower by itself."""
    orders = convolving(layer.transform.legal_orders, layer.area)
    if len(orders) == 1:
        return None
    least = min(order.per_vector for order in layer.transform.legal_orders)
    tried = [order.name for order in orders if order.name == FORMED or order.per_vector <= _MOST * least]
    by_itself = dataclasses.replace(layer.execution, inference=None)

    def call(execution: Execution) -> Callable[[], object]:
        trial = copy.deepcopy(layer)
        trial.execution = execution

        def run() -> object:
            with torch.inference_mode():
                return trial(x)

        return run

    executions: dict[str | None, Execution] = {None: by_itself}
    executions |= {name: Execution(order=name) for name in tried}
    calls = {name: call(execution) for name, execution in executions.items()}
    timings = time_in_turns(calls, rounds=_ROUNDS, seconds=seconds, wait=_wait_for(layer))
    best = min(timings, key=lambda name: timings[name].best)
    return best if timings[best].best < _WORSE * timings[None].best else None
