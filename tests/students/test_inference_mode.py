"""Networks that were made inside torch.inference_mode, whose tensors know no gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from understudy.students.substitute import Init


class Small(nn.Module):
    """An attention, whose projections are views of one matrix, and layers around it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.hidden = nn.Conv1d(3, 8, 3), nn.Conv1d(8, 8, 3, groups=2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.hidden(self.stem(x)).mT
        y: Tensor = self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))
        return y


@pytest.mark.parametrize("init", ["project", "fresh"])
def test_a_network_of_inference_mode_gives_a_student_that_trains(init: Init) -> None:
    x = torch.randn(2, 3, 8)
    with torch.inference_mode():
        model = Small()
    student = us.substitute(model, us.plan(model, "low_rank", scale=0.5, example=x), init=init)
    student(x).sum().backward()
    assert all(parameter.grad is not None for parameter in student.parameters())
    torch.testing.assert_close(us.merge(student)(x), student(x))


def test_it_is_substituted_in_place_and_in_inference_mode_as_well() -> None:
    x = torch.randn(2, 3, 8)
    with torch.inference_mode():
        model = Small()
        student = us.substitute(model, us.plan(model, "low_rank", scale=0.5, example=x))
    us.substitute_(model, us.plan(model, "low_rank", scale=0.5, example=x))
    with torch.inference_mode():
        torch.testing.assert_close(model(x), student(x))
