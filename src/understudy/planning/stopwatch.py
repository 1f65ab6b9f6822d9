"""What a network takes on this machine as it is, measured once: of one pass, each site, and all the rest."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_map_only

from understudy._util.modules import first_input
from understudy._util.wrappers import unwrapped
from understudy.counting.trace import Example, as_inputs, call_on

_SECONDS = 1.0  # in which passes are begun
_PASSES = 20  # at most
_FUSED = 1.1  # times the whole pass that its parts take, where more than hooks is between them
Lap = tuple[str, int]  # the site, or empty between sites; and its nanoseconds


@dataclasses.dataclass(frozen=True)
class Passed:
    """Nanoseconds of one pass in evaluation without gradients: of the whole, outside sites, and of each."""

    original: int
    rest: int
    sites: Mapping[str, int]  # all calls of each; one that no call was seen of is not there
    inputs: Mapping[str, Tensor]  # on the meta device: what each site is given first


def now() -> int:
    """Nanoseconds on a clock that runs while this works: with one thread not while others have the processor.

    Only Linux tells the time of a thread as finely as that of day.
    """
    alone = sys.platform == "linux" and torch.get_num_threads() == 1
    return time.thread_time_ns() if alone else time.perf_counter_ns()


def can_be_measured(model: nn.Module) -> bool:
    """Whether there are weights to run, where the model of time holds: on the processor."""
    tensors = [*model.parameters(), *model.buffers()]
    return bool(tensors) and all(
        not is_lazy(one)
        and one.device.type == "cpu"
        and (one.element_size() > 1 or not one.is_floating_point())
        for one in tensors
    )


def time_pass(model: nn.Module, network: nn.Module, example: Example, paths: Sequence[str]) -> Passed:
    """The best of some passes in turns: of the model as it is, and of it when open, in laps between sites.

    Each lap is the best of its own, so that noise has to meet it in every pass to be counted.
    """
    whole, parts = unwrapped(model), unwrapped(network)
    given = _on_processor(example, whole)
    laps = _Laps()
    found: dict[tuple[str, ...], list[list[int]]] = collections.defaultdict(list)
    plain: list[int] = []
    with _in_evaluation(whole, parts), torch.random.fork_rng(devices=[]), torch.no_grad():
        call_on(whole, given)
        began = time.monotonic()
        while not plain or (len(plain) < _PASSES and time.monotonic() - began < _SECONDS):
            started = now()
            call_on(whole, given)
            plain.append(now() - started)
            with laps.of({path: network.get_submodule(path) for path in paths}) as taken:
                call_on(parts, given)
            found[tuple(path for path, _ in taken)].append([each for _, each in taken])
    order, passes = max(found.items(), key=lambda item: len(item[1]))
    best: collections.Counter[str] = collections.Counter()
    for path, each in zip(order, zip(*passes, strict=True), strict=True):
        best[path] += min(each)
    return _split(min(plain), best, laps.inputs)


def _split(plain: int, best: collections.Counter[str], inputs: Mapping[str, Tensor]) -> Passed:
    """What is lost to hooks is no time of the rest; fused kernels, which students have not, are."""
    rest = best.pop("", 0)
    total = best.total() + rest
    if plain < total <= _FUSED * plain:
        rest = max(0, rest - (total - plain))
    return Passed(min(plain, total), rest, dict(best), inputs)


class _Laps:
    """Stops the time wherever a pass enters or leaves a site; one inside another belongs to that."""

    def __init__(self) -> None:
        self.inputs: dict[str, Tensor] = {}
        self._taken: list[Lap] = []
        self._depth = 0
        self._last = 0

    @contextlib.contextmanager
    def of(self, modules: Mapping[str, nn.Module]) -> Iterator[list[Lap]]:
        """The laps of the pass that is made meanwhile, complete at the end."""
        self._taken, self._depth = [], 0
        handles = []
        for path, module in modules.items():
            handles.append(module.register_forward_pre_hook(self._enter(path), with_kwargs=True))
            handles.append(module.register_forward_hook(self._leave(path)))
        try:
            self._last = now()
            yield self._taken
            self._lap("")
        finally:
            for handle in handles:
                handle.remove()

    def _lap(self, path: str) -> None:
        self._taken.append((path, now() - self._last))
        self._last = now()

    def _enter(self, path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if path not in self.inputs:
                first = first_input(args, kwargs)
                if isinstance(first, Tensor):
                    self.inputs[path] = first.to("meta", memory_format=torch.preserve_format)
            self._depth += 1
            if self._depth == 1:
                self._lap("")

        return hook

    def _leave(self, path: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            if self._depth == 1:
                self._lap(path)
            self._depth -= 1

        return hook


def _on_processor(example: Example, network: nn.Module) -> Example:
    """A copy, which a network may write to; zeros for what has only a shape."""

    def made(tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            return torch.zeros_like(tensor, device="cpu")
        return tensor.detach().to("cpu", copy=True)

    given: Example = tree_map_only(Tensor, made, as_inputs(example, network))
    return given


@contextlib.contextmanager
def _in_evaluation(*networks: nn.Module) -> Iterator[None]:
    """Every part in evaluation, and afterwards as it was."""
    modes = [(module, module.training) for network in networks for module in network.modules()]
    for network in networks:
        network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
