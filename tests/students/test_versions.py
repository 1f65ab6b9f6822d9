"""A file holds no versions of modules: those of the network count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import understudy as us


class Versioned(nn.Module):
    """Refuses weights of unknown age, as torchvision's MNASNet does."""

    _version = 2

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def _load_from_state_dict(self, state: Any, prefix: str, versions: Any, *others: Any) -> None:
        if versions.get("version") != 2:
            raise ValueError(f"version should be 2 instead of {versions.get('version')}")
        super()._load_from_state_dict(state, prefix, versions, *others)


@pytest.mark.parametrize("substituted", [False, True])
def test_a_network_that_looks_at_versions_is_loaded(substituted: bool, tmp_path: Path) -> None:
    model = Versioned()
    saved = us.substitute(model, us.plan(model, "low_rank", ratio=0.7)) if substituted else model
    us.save(saved, tmp_path / "network.safetensors")
    loaded = us.load(tmp_path / "network.safetensors", Versioned())
    for key, tensor in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], tensor)


def test_weights_of_a_network_that_looks_at_versions_are_loaded() -> None:
    source, model = Versioned(), Versioned()
    us.load_weights(model, dict(source.state_dict()))
    assert torch.equal(model.last.weight, source.last.weight)


def test_a_loaded_encoder_calls_its_layers_as_the_substituted_one_does(tmp_path: Path) -> None:
    def encoder() -> nn.Module:
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        return nn.TransformerEncoder(layer, 2).eval()

    model = encoder()
    x = torch.randn(1, 5, 16)
    student = us.substitute(model, us.plan(model, "low_rank", ratio=0.6, example=x))
    us.save(student, tmp_path / "student.safetensors")
    loaded = us.load(tmp_path / "student.safetensors", encoder()).eval()
    assert us.cost(loaded, x).mult_adds == us.cost(student, x).mult_adds
    with torch.no_grad():
        assert torch.equal(loaded(x), student(x))
    flags = [
        (module.activation_relu_or_gelu if isinstance(module, nn.TransformerEncoderLayer) else None)
        for module in loaded.modules()
    ]
    assert flags.count(0) == 2  # by which an encoder layer calls its layers, and hands no weight to a kernel
