"""Whether a step fits into memory, by what it would keep and what is free."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from understudy.layers import Execution, stand_ins
from understudy.train import Recipe, memory
from understudy.train.checkpoint import Progress
from understudy.train.job import Job
from understudy.train.trainer import Trainer

CPU = torch.device("cpu")


def student(transform: str = "tensor_train") -> nn.Module:
    model = us.create_model("wrn_10_1")
    return us.substitute(model, us.plan(model, transform, params="12k"))


def kept_for_real(network: nn.Module, x: Tensor) -> int:
    weights = {tensor.data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(x)
    assert output.requires_grad
    return sum(size for place, size in kept.items() if place not in weights)


@pytest.mark.parametrize("transform", ["low_rank", "tensor_train", "shuffle"])
def test_what_a_step_keeps_is_known_without_a_step(transform: str) -> None:
    network, x = student(transform).train(), torch.randn(3, 3, 32, 32)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    known = memory.kept_bytes(network, x)
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), key  # running statistics too
    assert all(layer.execution == Execution() for _, layer in stand_ins(network))
    for _, layer in stand_ins(network):
        layer.execution = Execution(recompute=False)
    assert known == pytest.approx(kept_for_real(network, x), rel=0.02)


def test_a_network_that_looks_at_values_is_not_known_to_fit() -> None:
    class Looking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if float(x.sum()) > 0 else -x

    assert memory.kept_bytes(Looking(), torch.ones(2)) is None
    assert not memory.fits(Looking(), torch.ones(2), CPU)


@pytest.mark.parametrize(
    ("free", "recompute"), [(None, None), (10_000, None), (1 << 40, False)], ids=["unknown", "full", "free"]
)
def test_stand_ins_compute_nothing_twice_where_a_step_fits(
    free: int | None, recompute: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: free)
    job = Job(model=student(), teacher=None, batches=[], settings=Recipe(), example=torch.zeros(1, 3, 32, 32))
    layers = [layer for _, layer in stand_ins(job.model)]
    layers[0].execution = Execution(recompute=True)  # what is asked for stays
    trainer = Trainer(job, 1)
    x, y = torch.randn(8, 3, 32, 32), torch.zeros(8, dtype=torch.long)
    trainer.step(x, y, 1.0, Progress())
    assert layers[0].execution.recompute is True
    assert {layer.execution.recompute for layer in layers[1:]} == {recompute}
    trainer.close()
    assert {layer.execution.recompute for layer in layers[1:]} == {None}


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_SYSTEM", tmp_path)
    assert memory.free_bytes(CPU) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4000 kB\n")
    assert memory.free_bytes(CPU) == 4000 * 1024
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.current").write_text("1000\n")
    (group / "memory.max").write_text("max\n")
    assert memory.free_bytes(CPU) == 4000 * 1024
    (group / "memory.max").write_text("5000\n")
    assert memory.free_bytes(CPU) == 4000
    assert memory.free_bytes(torch.device("meta")) is None
