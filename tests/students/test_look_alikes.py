"""Linear maps that are no nn.Linear: recognised by what they compute, and given back as what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from site_kinds import assert_dense_stand_ins_change_nothing, take_the_whole_way

IDS = torch.randint(0, 50, (6, 8), generator=torch.Generator().manual_seed(0))


class InOut(nn.Module):
    """x W + b, with W stored in × out; with a factor it is something else."""

    def __init__(self, in_features: int = 6, out_features: int = 4, *, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        out = flat.reshape(*x.shape[:-1], -1)
        return out if self.factor == 1 else self.factor * out


class OutIn(nn.Module):
    """x Wᵀ, with W stored out × in."""

    def __init__(self, in_features: int = 6, out_features: int = 4) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


class Biased(InOut):
    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Doubled(InOut):
    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight, beta=2)


class Noisy(InOut):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(x, training=self.training))


class Similar(InOut):
    """Products of the input with itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ x.mT


class Across(InOut):
    """The same matrix along the other axis."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.mT @ self.weight + self.bias).mT


def with_buffer() -> nn.Module:
    module = InOut()
    module.register_buffer("mask", torch.ones(4))
    return module


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=50, n_embd=32, n_layer=2, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0
        )
        model: nn.Module = transformers.GPT2Model(config)
    return model.eval()


def hidden_states(model: nn.Module) -> Tensor:
    states: Tensor = model(input_ids=IDS)[0]
    return states


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("kind", [InOut, OutIn])
def test_a_look_alike_is_a_site_of_the_right_shape(kind: Any, square: bool) -> None:
    module = kind(6, 6 if square else 4).double()
    model = nn.Sequential(module, nn.Linear(6 if square else 4, 3)).double()
    [site] = us.sites(model, torch.zeros(5, 6, dtype=torch.float64), include=["0"]).chosen
    assert (site.kind, site.in_features, site.out_features) == ("linear", 6, 6 if square else 4)
    assert site.mult_adds == 5 * site.params
    x = torch.randn(5, 6, dtype=torch.float64)
    student = assert_dense_stand_ins_change_nothing(model, lambda network: network(x), ["0"])
    assert student.get_submodule("0").weight.shape == module.weight.shape  # as whoever reads it expects
    merged = us.merge(student)
    assert type(merged.get_submodule("0")) is kind
    torch.testing.assert_close(merged.get_submodule("0").weight, module.weight)


@pytest.mark.parametrize(
    "module",
    [InOut(factor=2.0), Biased(), Doubled(), Noisy(), Similar(), Across(3, 3), with_buffer()],
    ids=lambda module: type(module).__name__,
)
def test_what_computes_anything_else_is_passed_over(module: nn.Module) -> None:
    [site, _] = us.sites(nn.Sequential(module, nn.Linear(4, 4)), include=["*"])
    assert site.skip is not None
    assert "is neither torch's Linear" in site.skip


def test_looking_at_a_module_runs_none_of_its_hooks() -> None:
    module = InOut()
    calls: list[str] = []
    module.register_forward_hook(lambda *_: calls.append("after"))
    module.register_forward_pre_hook(lambda *_: calls.append("before"))
    assert len(us.sites(nn.Sequential(module, nn.Linear(4, 4))).chosen) == 1
    assert not calls


@pytest.mark.parametrize("transform", ["low_rank", "hashed"])
def test_gpt2_takes_the_whole_way(transform: str, tmp_path: Path) -> None:
    student = take_the_whole_way(
        gpt2().double(), {"input_ids": IDS[:1]}, hidden_states, tmp_path, ["Conv1D"], transform
    )
    assert len(list(us.stand_ins(student))) == 8


def test_gpt2_with_dense_stand_ins_computes_what_it_did() -> None:
    assert_dense_stand_ins_change_nothing(gpt2().double(), hidden_states, ["Conv1D"])


def test_gpt2_is_compressed_with_every_layer_seen() -> None:
    batches = [{"input_ids": IDS[:3]}, {"input_ids": IDS[3:]}]
    done = us.compression(gpt2(), ratio=0.7, data=batches)
    assert done.calibration.idle == ()
    assert len(done.calibration.layers) == 7  # all but the last
    errors = [step.error for step in done.steps]
    assert errors[1] < errors[0]
    merged = us.merge(done.student)
    torch.testing.assert_close(hidden_states(merged), hidden_states(done.student), rtol=1e-3, atol=1e-4)


def test_weights_that_are_not_finite_are_refused_and_the_layer_named() -> None:
    model = nn.Sequential(InOut(6, 6), nn.Linear(6, 4))
    plan = us.plan(model, "low_rank", knob=1, include=["0"])
    with torch.no_grad():
        model.get_parameter("0.weight")[0, 0] = torch.nan
    with pytest.raises(ValueError, match="the weight of '0' holds NaN"):
        us.substitute(model, plan)


def test_a_plan_for_another_shape_is_refused() -> None:
    plan = us.plan(nn.Sequential(InOut(6, 6), nn.Linear(6, 4)), "low_rank", knob=1, include=["0"])
    with pytest.raises(ValueError, match=r"'0' is a linear with weight \(6, 7\), not a linear with \(6, 6\)"):
        us.substitute(nn.Sequential(InOut(7, 6), nn.Linear(6, 4)), plan)
