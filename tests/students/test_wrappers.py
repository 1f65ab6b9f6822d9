"""Wrapped networks: a student inside torch.compile or a parallel wrapper is saved under its own names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import understudy as us


class Blocks(nn.Module):
    """Two blocks of linear layers, one of them named as a wrapper names its content."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.module(x)
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.head(x)
        return y


def student() -> Blocks:
    model = Blocks()
    made = us.substitute(model, us.plan(model, "low_rank", knob=2))
    assert isinstance(made, Blocks)
    return made.eval()


def compiled(model: nn.Module) -> nn.Module:
    wrapped: nn.Module = torch.compile(model, backend="eager")  # type: ignore[assignment]
    return wrapped


def parts_compiled(model: Blocks) -> nn.Module:
    model.blocks[0] = compiled(model.blocks[0])
    model.module[0] = compiled(model.module[0])
    return model


WRAPPERS: dict[str, Callable[[Blocks], nn.Module]] = {
    "compiled": compiled,
    "parts compiled": parts_compiled,
    "parallel": nn.DataParallel,
    "compiled and parallel": lambda model: compiled(nn.DataParallel(parts_compiled(model))),
}


def assert_saved_as_plain(wrapped: nn.Module, wanted: Tensor, x: Tensor, folder: Path) -> None:
    us.save(student(), folder / "plain")
    us.save(wrapped, folder / "wrapped")
    names = []
    for name in ("plain", "wrapped"):
        with safe_open(folder / name, framework="pt") as file:
            names.append({*file.keys()})
    assert names[0] == names[1]
    assert type(us.load(folder / "plain", nn.DataParallel(Blocks()))) is Blocks
    loaded = us.load(folder / "wrapped", Blocks()).eval()
    torch.testing.assert_close(loaded(x), wanted)
    assert us.cost(loaded, x).bytes == (folder / "wrapped").stat().st_size


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapped_student_is_saved_as_the_plain_one(wrapper: str, tmp_path: Path) -> None:
    made, x = student(), torch.ones(2, 8)
    wanted = made(x)
    assert_saved_as_plain(WRAPPERS[wrapper](made), wanted, x, tmp_path)


def test_a_distributed_student_is_saved_as_the_plain_one(tmp_path: Path) -> None:
    made, x = student(), torch.ones(2, 8)
    wanted = made(x)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        assert_saved_as_plain(DistributedDataParallel(made), wanted, x, tmp_path)
    finally:
        dist.destroy_process_group()


def test_a_compiled_student_costs_what_the_plain_one_does() -> None:
    made, x = student(), torch.ones(2, 8)
    assert us.cost(compiled(made), x) == us.cost(made, x)


def test_a_compiled_student_is_merged_to_a_plain_network() -> None:
    made, x = student(), torch.ones(2, 8)
    merged = us.merge(compiled(made))
    assert type(merged) is Blocks
    assert not [*us.stand_ins(merged)]
    torch.testing.assert_close(merged(x), made(x))
