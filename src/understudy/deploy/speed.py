"""How long networks take in PyTorch on this machine: all take turns, so that they meet the same noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from understudy._util.guard import the_amount, the_network
from understudy._util.text_tables import Shown, Table, table
from understudy._util.timing import Timing, time_in_turns
from understudy.counting.trace import Example, as_inputs
from understudy.students.wrappers import unwrapped

from .graph import as_call, outputs

_ROUNDS = 20


@dataclasses.dataclass(frozen=True, repr=False)
class Latency(Shown):
    """What one forward pass in inference takes, network by network: printable.

    >>> import understudy as us
    >>> latency = us.speed(us.create_model("wrn_10_1"), (1, 3, 16, 16), seconds=0.05)
    >>> latency.time_ms() > 0
    True
    """

    timings: Mapping[str, Timing]
    threads: int

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {self.time_ms(name):.2f} ms" for name in self.timings)
        return f"<Latency: {told}>"

    def time_ms(self, name: str | None = None) -> float:
        """The best time of a network, of the first one by default."""
        return 1000 * self.timings[next(iter(self.timings)) if name is None else name].best

    def table(self) -> Table:
        """A row for every network; the first is what the others are compared with."""
        first = self.time_ms()
        rows = [
            (
                name,
                f"{1000 * timing.best:.2f} ms",
                f"{1000 * timing.median:.2f} ms",
                f"{first / (1000 * timing.best):.2f}×",
            )
            for name, timing in self.timings.items()
        ]
        caption = f"best and median of {min(each.count for each in self.timings.values())} calls in turns; "
        return table(
            ["network", ">best", ">median", ">quicker"], rows, caption=caption + f"{self.threads} threads"
        )


def speed(models: nn.Module | Mapping[str, nn.Module], example: Example, *, seconds: float = 5.0) -> Latency:
    """Time forward passes in inference on `example`; several networks, by name, take turns.

    >>> import understudy as us
    >>> model = us.create_model("wrn_10_1")
    >>> student = us.substitute(model, us.plan(model, "low_rank", ratio=0.5))
    >>> us.speed({"original": model, "student": student}, (1, 3, 32, 32), seconds=0.1).time_ms("student") > 0
    True
    """
    the_amount("seconds", seconds, above=True)
    named = dict(models) if isinstance(models, Mapping) else {type(models).__name__: models}
    if not named:
        raise ValueError("no network to time")
    for name, model in named.items():
        the_network(model, "models" if model is models else f"models[{name!r}]", run=True)
    calls: dict[str, Callable[[], object]] = {}
    modes = [(module, module.training) for model in named.values() for module in unwrapped(model).modules()]
    try:
        for name, model in named.items():
            network = unwrapped(model).eval()
            calls[name] = forward_pass(network, example)
        device = next((p.device.type for model in named.values() for p in model.parameters()), "cpu")
        wait = torch.cuda.synchronize if device == "cuda" else lambda: None
        taken = time_in_turns(calls, rounds=_ROUNDS, seconds=seconds, wait=wait)
    finally:
        for module, training in modes:
            module.training = training
    return Latency(taken, torch.get_num_threads())


def forward_pass(network: nn.Module, example: Example) -> Callable[[], object]:
    """A forward pass, tried once; on a copy of the example, which a network may write to."""
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    given: Example = tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(device, copy=True), as_inputs(example, network)
    )
    outputs(network, given)
    args, kwargs = as_call(given)

    def run() -> object:
        with torch.inference_mode():
            return network(*args, **kwargs)

    return run
