"""Trained networks by name: weights from a file, or those that a network comes with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import understudy as us
from understudy.networks.trained import normalisation, published_model, trained_model


def test_a_built_in_network_takes_the_weights_of_a_file(tmp_path: Path) -> None:
    model = us.create_model("wrn_10_1", classes=3)
    us.save(model, tmp_path / "own.safetensors")
    torch.save(model.state_dict(), tmp_path / "plain.pt")
    for name in ("own.safetensors", "plain.pt"):
        made = trained_model("wrn_10_1", tmp_path / name, classes=3)
        assert not made.training
        torch.testing.assert_close(made.state_dict(), model.state_dict())
        with pytest.raises(ValueError, match="does not fit wrn_10_1: "):
            trained_model("wrn_10_1", tmp_path / name)


def test_a_file_of_stand_ins_gives_the_student_itself(tmp_path: Path) -> None:
    model = us.create_model("wrn_10_1")
    us.save(us.substitute(model, us.plan(model, "low_rank", ratio=0.5)), tmp_path / "student.safetensors")
    made = trained_model("wrn_10_1", tmp_path / "student.safetensors")
    assert any(True for _ in us.stand_ins(made))


def test_an_error_of_a_factory_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def make(): raise KeyError('mine')\n")
    with pytest.raises(KeyError, match="mine"):
        published_model(f"{tmp_path}/mine.py:make")


def test_a_network_of_timm_says_how_its_images_are_normalised() -> None:
    class Network(nn.Module):
        pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.25,) * 3}  # noqa: RUF012

    assert normalisation("timm:some", Network()) == ((0.5,) * 3, (0.25,) * 3)
    assert normalisation("torchvision:some", Network()) == ((), ())
