"""What is counted runs on a copy of which nobody else hears: no flag, no hook, no process group."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import understudy as us

X = (2, 3, 8, 8)


class Marked(nn.Module):
    """A network with batch norm, whose forward pass leaves marks for a profiler."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.hidden = nn.Conv2d(8, 8, 3)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        with torch.profiler.record_function("trunk"):
            x = self.hidden(self.norm(self.stem(x)))
        y: Tensor = self.head(x.mean((2, 3)))
        return y


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


# stem: 2·6·6 outputs of 8 · 27 products, hidden: 2·4·4 of 8 · 72, head: 2 of 2 · 8
MARKED = 2 * 36 * 8 * 27 + 2 * 16 * 8 * 72 + 2 * 2 * 8


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("wrapper", [nn.Identity, nn.DataParallel, DistributedDataParallel])
def test_marks_and_parallel_wrappers_are_free(wrapper: Callable[[nn.Module], nn.Module]) -> None:
    wrapped = Marked() if wrapper is nn.Identity else wrapper(Marked())
    for network in (wrapped, nn.Sequential(wrapped)):
        assert us.cost(network, X).mult_adds == MARKED
        assert us.cost(network, X, meta=False).mult_adds == MARKED
        survey = us.sites(network, X)
        assert survey.mult_adds == MARKED
        assert [site.path.rpartition(".")[2] for site in survey.chosen] == ["hidden"]


class Waiting(nn.Module):
    """Says that it runs and waits to be let go; notes whether fused attention is on for all."""

    def __init__(self, running: threading.Event, go: threading.Event, seen: list[bool]) -> None:
        super().__init__()
        self.__dict__["together"] = (running, go, seen)
        self.linear = nn.Linear(4, 4)

    def __deepcopy__(self, memo: dict[int, Any]) -> Waiting:
        return Waiting(*self.__dict__["together"])

    def forward(self, x: Tensor) -> Tensor:
        running, go, seen = self.__dict__["together"]
        seen.append(torch.backends.mha.get_fastpath_enabled())
        running.set()
        assert go.wait(10)
        y: Tensor = self.linear(x)
        return y


def test_threads_that_count_at_once_leave_no_flag_behind() -> None:
    assert torch.backends.mha.get_fastpath_enabled()
    attribute = nn.Module.__getattr__
    seen: list[bool] = []
    events = [(threading.Event(), threading.Event()) for _ in range(2)]
    threads = []
    for running, go in events:  # one begins, the next begins, the first ends, the next ends
        network = Waiting(running, go, seen)
        threads.append(threading.Thread(target=us.cost, args=(network, (1, 4)), kwargs={"meta": False}))
        threads[-1].start()
        assert running.wait(10)
    for thread, (_, go) in zip(threads, events, strict=True):
        go.set()
        thread.join()
    try:
        assert seen == [True, True]
        assert nn.Module.__getattr__ is attribute
        assert torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.parametrize("meta", [True, False])
def test_a_fused_encoder_is_counted_by_its_parts(meta: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    projections, products, perceptron = 5 * 8 * 8 * 4, 2 * 5 * 5 * 8, 5 * 8 * 16 * 2
    assert us.cost(encoder, (1, 5, 8), meta=meta).mult_adds == projections + products + perceptron


class Watcher:
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls: list[str] = []

    def __call__(self, *_: Any) -> None:
        self.calls.append("called")

    def look(self, *_: Any) -> None:
        self.calls.append("looked")


@pytest.mark.parametrize("meta", [True, False])
def test_hooks_of_the_user_are_not_called(meta: bool) -> None:
    model, watcher = Marked(), Watcher()
    model.hidden.register_forward_hook(watcher)
    model.hidden.register_forward_pre_hook(watcher.look)
    model.register_forward_hook(lambda *_: watcher.calls.append("function"))
    model.head.register_full_backward_hook(watcher.look)
    us.cost(model, X, meta=meta)
    us.sites(model, X, meta=meta)
    assert not watcher.calls
    model(torch.zeros(X))
    assert watcher.calls == ["looked", "called", "function"]  # and they are still there


class Collecting(nn.Module):
    """Takes its features from a hook of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), nn.Linear(6, 2)
        self.features: list[Tensor] = []
        self.trunk[0].register_forward_hook(self.keep)

    def keep(self, _: nn.Module, __: Any, output: Tensor) -> None:
        self.features.append(output)

    def forward(self, x: Tensor) -> Tensor:
        self.trunk(x)
        y: Tensor = self.head(self.features.pop())
        return y


def test_hooks_that_are_part_of_the_network_are_called() -> None:
    assert us.cost(Collecting(), (1, 4)).mult_adds == 4 * 6 + 6 * 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        normed = nn.utils.weight_norm(nn.Linear(4, 6))
    assert us.cost(normed, (1, 4)).mult_adds == 4 * 6


class Placed(nn.Module):
    """A bare matrix beside layers."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(3, 5))
        self.first, self.second = nn.Linear(5, 7), nn.Linear(7, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x + self.place))
        return y


def test_a_bare_matrix_is_counted_without_the_layers_beside_it() -> None:
    survey = us.sites(Placed())
    assert {site.path: site.params for site in survey} == {"": 15, "first": 35, "second": 14}
    assert sum(site.params for site in survey) < survey.params
