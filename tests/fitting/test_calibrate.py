"""Calibration: moments of what a layer's weight is really multiplied with, whatever the data come as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from snapshots import snapshot
from understudy.fitting.inputs import DataError, held_back, joined, read_batches
from understudy.fitting.rows import input_rows, output_rows, sample_positions
from understudy.layers.dense import the_dense_map

LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (2, 3, 9, 8)),
    (nn.Conv2d(3, 4, 3, padding="same", padding_mode="reflect"), (2, 3, 6, 5)),
    (nn.Conv2d(4, 6, 1, stride=2, bias=False), (3, 4, 7, 7)),
    (nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"), (2, 3, 9)),
    (nn.Linear(3, 7), (2, 6, 3)),
    (nn.Linear(3, 7), (4, 3)),
]


class Small(nn.Module):
    """A convolution with a batch norm behind it, one without, a layer that is called twice, one never."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.normed = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.bare = nn.Conv2d(16, 16, 1, bias=False)
        self.twice = nn.Linear(16, 16)
        self.never = nn.Linear(16, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.normed(torch.relu(self.stem(x)))))
        x = (x + self.bare(x)).mean(dim=(2, 3))
        logits: Tensor = self.head(torch.relu(self.twice(torch.relu(self.twice(x)))))
        return logits


def small() -> Small:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Small()
        model.norm.running_mean = torch.randn(16)
        model.norm.running_var = torch.rand(16) + 0.5
    return model.eval()


def images(count: int = 48, seed: int = 1) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("module", "shape"), LAYERS, ids=lambda value: str(value))
@pytest.mark.parametrize("most", [3, 1000])
def test_rows_times_the_weight_are_the_outputs(module: nn.Module, shape: tuple[int, ...], most: int) -> None:
    layer = the_dense_map(module)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    where = sample_positions(layer, x, most, torch.Generator().manual_seed(1))
    rows = input_rows(layer, x, where)
    bias = 0 if layer.bias is None else layer.bias
    torch.testing.assert_close(rows @ layer.weight.flatten(1).T + bias, output_rows(layer, module(x), where))


def test_moments_are_those_of_the_inputs_and_the_model_is_left_alone() -> None:
    model = small().train()
    before = snapshot(model)
    seen = us.calibrate(model, images(), positions=10_000)
    assert snapshot(model) == before
    assert set(seen.layers) == {"normed", "bare", "twice"}
    assert seen.idle == ("never",)
    with torch.no_grad():
        hidden = torch.relu(model.eval().stem(images()))
    patches = nn.functional.unfold(hidden, 3, padding=1).mT.reshape(-1, 72).double()
    torch.testing.assert_close(seen.layers["normed"].mean, patches.mean(0), rtol=1e-4, atol=1e-6)
    centred = patches - patches.mean(0)
    torch.testing.assert_close(
        seen.layers["normed"].covariance, centred.T @ centred / len(patches), rtol=1e-3, atol=1e-5
    )
    assert seen.layers["twice"].count == 2 * 48


def test_the_gradient_says_what_an_output_is_worth() -> None:
    """The last layer before a linear head: an error of its output counts by the head's weights."""
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).eval()
    seen = us.calibrate(model, torch.randn(4096, 4), include=["0"], samples=4096)
    wanted = model[1].weight.T @ model[1].weight  # type: ignore[operator]
    gradient = seen.layers["0"].gradient
    assert gradient is not None
    torch.testing.assert_close(gradient, wanted.detach().double(), rtol=0.35, atol=0.15)


@pytest.mark.parametrize(
    "data",
    [
        images(),
        images().split(16),
        [(part, torch.zeros(len(part), dtype=torch.long)) for part in images().split(16)],
        iter(images().split(7)),
    ],
    ids=["tensor", "batches", "labelled", "iterator"],
)
def test_data_may_come_as_loaders_give_them(data: Any) -> None:
    found = us.calibrate(small(), data, samples=40)
    assert found.samples == 40
    torch.testing.assert_close(
        found.layers["twice"].mean, us.calibrate(small(), images(), samples=40).layers["twice"].mean
    )


class Words(nn.Module):
    """Takes token indices and a mask, and returns a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layer = nn.Linear(8, 8)
        self.head = nn.Linear(8, 8)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        hidden = self.layer(self.embedding(input_ids)) * attention_mask[..., None]
        return {"last_hidden_state": self.head(hidden)}


def test_tokens_that_only_fill_up_a_batch_are_not_seen() -> None:
    model = Words().eval()
    short = {"input_ids": torch.randint(1, 20, (4, 5)), "attention_mask": torch.ones(4, 5, dtype=torch.long)}
    padded = {key: nn.functional.pad(value, (0, 3)) for key, value in short.items()}
    one, other = (us.calibrate(model, [it], include=["layer"]).layers["layer"] for it in (short, padded))
    assert one.count == other.count == 20
    torch.testing.assert_close(one.covariance, other.covariance)
    assert joined(read_batches([short, padded], 8)).mask is not None


def test_a_calibration_is_printed_saved_and_loaded(tmp_path: Path) -> None:
    seen = us.calibrate(small(), images(8))
    text = str(seen)
    assert "fewer vectors than dimensions: regularised" in text
    assert "never ran on the data: fitted plainly" in text
    assert repr(seen) == "<Calibration: 3 layers of Small, 8 samples>"
    seen.save(tmp_path / "seen.safetensors")
    again = us.Calibration.load(tmp_path / "seen.safetensors")
    assert (again.model, again.samples, again.idle) == (seen.model, seen.samples, seen.idle)
    for path, one in seen.layers.items():
        other = again.layers[path]
        assert (one.count, one.mean.tolist()) == (other.count, other.mean.tolist())
        assert torch.equal(one.covariance, other.covariance)
    us.save(small(), tmp_path / "network.safetensors")
    (tmp_path / "text.safetensors").write_text("no tensors")
    for name in ("network", "text"):
        with pytest.raises(ValueError, match=rf"{name}\.safetensors is not a calibration"):
            us.Calibration.load(tmp_path / f"{name}.safetensors")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "the data hold no batch"),
        (7, "data is a int, not batches of inputs"),
        (["text"], "a batch is a str, not a tensor"),
        ([{}], "and no tensor"),
        ([(1, 2)], "does not begin with a tensor"),
        ([torch.zeros(0, 3, 8, 8)], "it holds no sample"),
        (torch.zeros(4, 5, 8, 8), r"Small cannot run on a batch of shape \[\(1, 5, 8, 8\)\]"),
        (torch.full((4, 3, 8, 8), float("nan")), "the input of 'normed' holds NaN or infinity"),
    ],
)
def test_data_that_are_none_are_refused_with_the_reason(data: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        us.calibrate(small(), data)


def test_layers_that_do_not_fit_into_memory_together_are_looked_at_in_turn() -> None:
    whole = us.calibrate(small(), images())
    parts = us.calibrate(small(), images(), memory=8 * 72**2)
    for path, seen in whole.layers.items():
        torch.testing.assert_close(seen.mean, parts.layers[path].mean, rtol=0.2, atol=0.1)
    with pytest.raises(DataError, match="the moments of 'normed' take 41,472 bytes, more than the 1,000"):
        us.calibrate(small(), images(), memory="1k")


def test_some_inputs_are_held_back_to_decide() -> None:
    fit, decide = held_back(read_batches(images().split(8), 48))
    assert (sum(batch.size for batch in fit), sum(batch.size for batch in decide)) == (42, 6)
    fit, decide = held_back(read_batches(images(16), 16))
    assert (fit[0].size, decide[0].size) == (14, 2)
    fit, decide = held_back(read_batches([images(5), images(1), images(1), images(1)], 16))
    assert ([batch.size for batch in fit], [batch.size for batch in decide]) == ([5, 1, 1], [1])
    fit, decide = held_back(read_batches(images(1), 16))
    assert fit is decide  # one sample is all there is
