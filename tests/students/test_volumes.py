"""Convolutions of volumes and videos, nn.Conv3d, take the same way as those of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from site_kinds import assert_dense_stand_ins_change_nothing, take_the_whole_way
from understudy.layers import Layer


class Video(nn.Module):
    """A stem, three convolutions of other kernels, strides and groups, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv3d(3, 8, 3, padding=1)
        self.over_space = nn.Conv3d(8, 12, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))
        self.over_time = nn.Conv3d(12, 16, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.grouped = nn.Conv3d(16, 16, 3, padding=1, groups=2)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.over_space(torch.relu(self.stem(x))))
        logits: Tensor = self.head(torch.relu(self.grouped(self.over_time(x))).mean(dim=(2, 3, 4)))
        return logits


KERNELS = ["over_space", "over_time", "grouped"]


def network() -> Video:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Video().double().eval()


def videos(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 4, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def logits(model: nn.Module) -> Tensor:
    out: Tensor = model(videos())
    return out


def test_a_convolution_of_volumes_is_a_site() -> None:
    site = next(site for site in us.sites(network(), videos()) if site.path == "over_space")
    assert (site.kind, site.kernel, site.shape, site.skip) == ("conv3d", (1, 3, 3), "1×3×3 8 → 12", None)
    assert site.mult_adds == 2 * 4 * 3 * 3 * site.params


@pytest.mark.parametrize("spatial", ["unfolded", "separable"])
@pytest.mark.parametrize("transform", ["low_rank", "tensor_train", "hashed"])
def test_a_network_of_volumes_takes_the_whole_way(transform: str, spatial: str, tmp_path: Path) -> None:
    student = take_the_whole_way(network(), videos(), logits, tmp_path, KERNELS, transform, spatial=spatial)
    lowered = us.lower(student)
    with torch.no_grad():
        torch.testing.assert_close(logits(lowered), logits(student), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "conv",
    [
        nn.Conv3d(4, 6, (3, 2, 3), stride=(1, 2, 1), dilation=(2, 1, 1), padding=(0, 1, 2)),
        nn.Conv3d(4, 6, 3, padding="same", padding_mode="circular", bias=False),
        nn.Conv3d(4, 6, 1, stride=2),
    ],
    ids=str,
)
@pytest.mark.parametrize("order", ["formed", None])
def test_stand_ins_give_the_outputs_of_any_convolution_of_volumes(conv: nn.Module, order: Any) -> None:
    model = nn.Sequential(conv).double()
    x = torch.randn(2, 4, 6, 7, 5, dtype=torch.float64)
    assert_dense_stand_ins_change_nothing(model, lambda network: network(x), ["0"])
    assert_dense_stand_ins_change_nothing(model, lambda network: network(x[0]), ["0"])
    plan = us.plan(model, "block_circulant", knob=2, include=["0"], spatial="unfolded")
    student = us.substitute(model, plan)  # a Fourier transform needs its patches
    layer = student.get_submodule("0")
    assert isinstance(layer, Layer)
    if order is not None:
        layer.execution = us.Execution(order=order)
    torch.testing.assert_close(student(x), us.merge(student)(x), rtol=1e-9, atol=1e-10)


def test_a_trained_network_of_volumes_is_compressed() -> None:
    model = network().float()
    x = videos(16).float()
    student = us.compress(model, ratio=0.6, data=x, include=KERNELS)
    assert sum(parameter.numel() for parameter in student.parameters()) <= 0.6 * sum(
        parameter.numel() for parameter in model.parameters()
    )
    with torch.no_grad():
        assert float((student(x) - model(x)).norm()) < float(model(x).norm())
