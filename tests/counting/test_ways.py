"""A network is counted on a copy without weights, on fake tensors or on a real copy: whichever runs."""

from __future__ import annotations

from collections import UserDict
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from understudy.counting import operations
from understudy.counting import trace as tracing


class Positions(nn.Module):
    """Makes its positions on the CPU, as many language models do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        places = torch.arange(x.shape[1]).to(x.dtype)[:, None]
        y: Tensor = self.second(self.first(x + places))
        return y if attention_mask is None else y * attention_mask[..., None]


class Looking(Positions):
    """Looks at its mask, and draws."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is not None and bool(attention_mask.all()):
            return super().forward(x + torch.rand(()))
        return super().forward(x, attention_mask)


@pytest.mark.parametrize(("kind", "tries"), [(nn.Sequential, 1), (Positions, 2), (Looking, 3)])
def test_only_as_much_is_made_as_a_network_needs(
    kind: type[nn.Module], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []
    whole = tracing._traced

    def noting(*arguments: Any, **named: Any) -> Any:
        tried.append(arguments)
        return whole(*arguments, **named)

    monkeypatch.setattr(tracing, "_traced", noting)
    x, mask = torch.zeros(2, 3, 4), torch.ones(2, 3)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4)) if kind is nn.Sequential else kind()
    example = x if kind is nn.Sequential else {"x": x, "attention_mask": mask}
    before = torch.get_rng_state()
    assert us.cost(model, example).mult_adds == 6 * 2 * 24
    assert len(tried) == tries
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_what_a_tokenizer_gives_is_an_example_everywhere(kind: type[Any]) -> None:
    model = Looking().eval()
    example = kind({"x": torch.randn(2, 3, 4), "attention_mask": torch.ones(2, 3, dtype=torch.long)})
    plan = us.plan(model, "low_rank", mult_adds=200, example=example, include=["Linear"])
    student = us.substitute(model, plan)
    assert us.cost(student, example).mult_adds == plan.mult_adds
    assert us.speed(student, example, seconds=0.01).time_ms() > 0
    small = us.compress(model, ratio=0.9, data=[example], include=["Linear"])
    assert us.cost(small, example).mult_adds <= us.cost(model, example).mult_adds


def test_an_example_with_a_shape_alone_is_filled_where_values_are_needed() -> None:
    example = {
        "x": torch.empty(2, 3, 4, device="meta"),
        "attention_mask": torch.empty(2, 3, device="meta"),
    }
    assert us.cost(Looking(), example).mult_adds == 6 * 2 * 24


def test_an_operation_that_fake_tensors_cannot_run_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(Positions):
        def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            return super().forward(x, attention_mask) @ cast(Tensor, needs_values(x))

    library = torch.library.Library("understudy_ways", "FRAGMENT")
    library.define("needs_values(Tensor x) -> Tensor")
    library.impl("needs_values", lambda x: torch.eye(x.shape[-1]), "CPU")
    library.impl("needs_values", refuse, "Meta")
    needs_values: Any = torch.ops.understudy_ways.needs_values
    operations.register_operation(needs_values)
    try:
        assert us.cost(Picky(), torch.zeros(2, 3, 4)).mult_adds == 6 * (2 * 24 + 16)
    finally:
        del operations._RULES[needs_values]
    assert not caplog.records


def refuse(x: Tensor) -> Tensor:
    raise RuntimeError(f"{tuple(x.shape)} has no values")


def test_an_operation_without_a_rule_is_refused_at_once() -> None:
    class Inverting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inverse: Tensor = torch.linalg.inv(x)
            return inverse

    with pytest.raises(us.UnknownOperationError, match="linalg_inv_ex"):
        us.cost(Inverting(), torch.eye(3))
