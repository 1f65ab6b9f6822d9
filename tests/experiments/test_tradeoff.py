"""The trade-off curve in Python: one look at the data, many students, and the price that is not known."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from snapshots import snapshot
from understudy.experiments import Tradeoff, every_transform, quality
from understudy.planning.budget import Budget


class Small(nn.Module):
    """Four layers, and an operation that has no price where that is asked for."""

    def __init__(self, *, odd: bool = False) -> None:
        super().__init__()
        self.first, self.hidden = nn.Linear(8, 24), nn.Linear(24, 24)
        self.more, self.last = nn.Linear(24, 24), nn.Linear(24, 4)
        self.odd = odd

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.more(torch.relu(self.hidden(torch.relu(self.first(x))))))
        if self.odd:
            x = x + torch.linalg.pinv(x)[:24].mT
        y: Tensor = self.last(x)
        return y


def inputs(count: int, seed: int) -> list[Tensor]:
    return list(torch.randn(count, 8, generator=torch.Generator().manual_seed(seed)).split(16))


def test_students_of_one_look_at_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "_ROUNDS", 1)
    model = Small().eval()
    before = snapshot(model)
    told: list[str] = []
    curve = Tradeoff(model, data=inputs(64, 0), test=inputs(40, 1), watch=lambda what, *_: told.append(what))
    refused: list[str] = []
    budgets = [Budget("ratio", 0.9), Budget("ratio", 0.6), Budget("ratio", 0.01)]
    made = list(curve.students(["low_rank"], budgets, lambda _, __, error: refused.append(str(error))))
    assert [one.record.name for one in made] == ["low_rank-90", "low_rank-60"]
    assert len(refused) == 1
    assert "below what is reachable" in refused[0]
    assert snapshot(model) == before
    mild, strong = (one.record for one in made)
    assert strong.costs.params < mild.costs.params < curve.costs.params
    assert strong.quality.cosine < mild.quality.cosine <= 1
    assert sum(layer.error or 0 for layer in strong.layers) > sum(layer.error or 0 for layer in mild.layers)
    assert mild.quality.samples == 40
    assert told.count("looking at the inputs of the layers") == 1
    assert told.count("testing the original") == 1
    with pytest.raises(us.BudgetError):
        list(curve.students(["low_rank"], budgets[2:]))


def test_a_network_that_writes_to_its_inputs_leaves_them_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    class Writing(Small):
        def forward(self, x: Tensor) -> Tensor:
            x /= 0.25
            return super().forward(x)

    monkeypatch.setattr(quality, "_ROUNDS", 3)
    data, test = inputs(64, 0), inputs(16, 1)
    curve = Tradeoff(Writing().eval(), data=data, test=test)
    assert len(list(curve.students(["low_rank", "hashed"], [Budget("ratio", 0.7)]))) == 2
    assert all(map(torch.equal, [*data, *test], [*inputs(64, 0), *inputs(16, 1)]))


def test_mult_adds_that_have_no_price_are_not_known() -> None:
    model = Small(odd=True).eval()
    curve = Tradeoff(model, data=inputs(64, 0), test=inputs(16, 1))
    assert curve.costs.mult_adds is None
    assert "mult-adds are not counted" in " ".join(curve.notes)


def test_every_transform_stands_in_for_something() -> None:
    assert set(every_transform()) == set(us.list_transforms()) - {"dense"}


class Encoder(nn.Module):
    """Vectors of length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x.flatten(1), dim=1)


@pytest.mark.parametrize("flat", [False, True])
def test_one_number_a_sample_is_judged_over_all_samples_about_their_mean(flat: bool) -> None:
    def regressor() -> nn.Sequential:
        layer = nn.Linear(3, 1)
        nn.init.constant_(layer.bias, 5.0)  # all numbers have one sign
        return nn.Sequential(layer, nn.Flatten(0) if flat else nn.Identity())

    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    model, other = regressor(), regressor()
    yardstick = quality.Yardstick(model, x.split(16))
    assert yardstick.quality.cosine == pytest.approx(1)
    with torch.no_grad():
        mine, theirs = (net(x).flatten().double() - model(x).double().mean() for net in (other, model))
    wanted = float(F.cosine_similarity(mine, theirs, dim=0))
    assert yardstick.of(other).cosine == pytest.approx(wanted, abs=1e-5)
    assert yardstick.of(other).agreement is None
    lone = quality.Yardstick(model, [x[:1]])  # one number has no deviation from its mean
    assert (lone.quality.cosine, lone.of(other).cosine) == (1.0, 0.0)


def test_the_largest_entry_of_a_vector_of_length_one_is_no_answer() -> None:
    found = quality.Yardstick(Encoder(), [torch.randn(4, 3, 2, 2)]).quality
    assert found.agreement is None
    assert found.cosine == pytest.approx(1)
