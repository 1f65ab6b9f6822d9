"""Weights under other names: loaded exactly, or refused with the model unchanged."""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import understudy as us
from understudy.students.weights import load_weights

State = dict[str, Tensor]


def network(seed: int, name: str = "wrn_10_1") -> nn.Module:
    """A network whose every tensor is random, the statistics of the norms too."""
    model = us.create_model(name, classes=10)
    generator = torch.Generator().manual_seed(seed)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator))
    return model


def state_of(model: nn.Module) -> State:
    return {key: tensor.clone() for key, tensor in model.state_dict().items()}


def assert_same(model: nn.Module, expected: State) -> None:
    found = model.state_dict()
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(found[key], tensor), key


def renamed(state: State) -> State:
    """The same hierarchy as other people write it, in another order and without step counters."""
    rules = [
        (r"^stage(\d)\.", r"block\1.layer."),
        (r"norm(\d)\.", r"batch_norm\1."),
        (r"conv(\d)\.", r"convolution\1."),
        (r"shortcut\.", r"downsample."),
        (r"^norm\.", r"last_bn."),
        (r"^stem\.", r"conv0."),
        (r"^head\.", r"fc."),
    ]
    result: State = {}
    for key, tensor in reversed(state.items()):
        for pattern, replacement in rules:
            key = re.sub(pattern, replacement, key)
        if not key.endswith("num_batches_tracked"):
            result[key] = tensor
    return result


def test_a_state_dict_with_the_same_keys_loads_as_it_is() -> None:
    source, model = network(1), network(2)
    pairs = load_weights(model, source.state_dict())
    assert_same(model, state_of(source))
    assert all(old == new for old, new in pairs.items())


@pytest.mark.parametrize("name", ["wrn_10_1", "wrn_16_2"])
def test_a_renamed_hierarchy_loads_exactly_and_says_what_it_matched(name: str) -> None:
    source, model = network(1, name), network(2, name)
    pairs = load_weights(model, renamed(source.state_dict()))
    assert_same(model, state_of(source))
    assert pairs["block1.layer.0.batch_norm1.weight"] == "stage1.0.norm1.weight"
    assert pairs["fc.bias"] == "head.bias"


def test_a_prefix_around_all_keys_is_seen_through() -> None:
    source, model = network(1), network(2)
    load_weights(model, {f"module.{key}": tensor for key, tensor in source.state_dict().items()})
    assert_same(model, state_of(source))


def test_a_mapping_of_prefixes_decides() -> None:
    source, model = network(1), network(2)
    # turned around on purpose: the norms of a block cannot be told apart by shape and order alone
    state = {
        key.replace("stage1.0.norm1", "stage1.0.z").replace("stage1.0.norm2", "stage1.0.a"): tensor
        for key, tensor in source.state_dict().items()
    }
    pairs = load_weights(model, state, {"stage1.0.z": "stage1.0.norm1", "stage1.0.a": "stage1.0.norm2"})
    assert_same(model, state_of(source))
    assert pairs["stage1.0.z.weight"] == "stage1.0.norm1.weight"


def test_a_mapping_to_nothing_strips_a_prefix() -> None:
    source, model = network(1), network(2)
    load_weights(
        model, {f"module.{key}": tensor for key, tensor in source.state_dict().items()}, {"module": ""}
    )
    assert_same(model, state_of(source))


def test_a_leftover_tensor_is_an_error_and_the_model_is_unchanged() -> None:
    model = network(2)
    before = state_of(model)
    for extra in ({"extra.weight": torch.zeros(7)}, {"stage1.0.norm3.weight": torch.zeros(16)}):
        with pytest.raises(ValueError, match="left over"):
            load_weights(model, {**network(1).state_dict(), **extra})
        assert_same(model, before)


@pytest.mark.parametrize("key", ["head.bias", "stem.weight", "stage2.0.shortcut.weight"])
def test_a_missing_tensor_is_an_error_and_the_model_is_unchanged(key: str) -> None:
    model = network(2)
    before = state_of(model)
    state = state_of(network(1))
    del state[key]
    with pytest.raises(ValueError, match=f"missing .*{key.split('.')[0]}"):
        load_weights(model, state)
    assert_same(model, before)


def test_another_shape_is_named_and_the_model_is_unchanged() -> None:
    model = network(2)
    before = state_of(model)
    state = state_of(network(1)) | {"head.weight": torch.zeros(100, 64)}
    with pytest.raises(
        ValueError, match=r"'head.weight' has shape \(100, 64\), but 'head.weight' \(10, 64\)"
    ):
        load_weights(model, state)
    assert_same(model, before)


def test_another_network_is_refused_and_the_model_is_unchanged() -> None:
    model = network(2)
    before = state_of(model)
    with pytest.raises(ValueError, match="do not fit WideResNet"):
        load_weights(model, renamed(network(1, "wrn_16_2").state_dict()))
    assert_same(model, before)


def test_a_safetensors_file_loads(tmp_path: Path) -> None:
    source, model = network(1), network(2)
    save_file(renamed(source.state_dict()), tmp_path / "weights.safetensors")
    load_weights(model, tmp_path / "weights.safetensors")
    assert_same(model, state_of(source))


@pytest.mark.parametrize("nested", [True, False])
def test_a_torch_file_of_weights_loads(tmp_path: Path, nested: bool) -> None:
    source, model = network(1), network(2)
    state = source.state_dict()
    torch.save({"state_dict": state, "epoch": 3} if nested else state, tmp_path / "weights.pt")
    load_weights(model, str(tmp_path / "weights.pt"))
    assert_same(model, state_of(source))


def test_a_torch_file_with_code_in_it_is_refused(tmp_path: Path) -> None:
    torch.save(network(1), tmp_path / "model.pth")
    with pytest.raises(ValueError, match="weights alone"):
        load_weights(network(2), tmp_path / "model.pth")


def test_a_torch_file_without_a_state_dict_is_refused(tmp_path: Path) -> None:
    for content in ([torch.zeros(3)], {"epoch": 3}):
        torch.save(content, tmp_path / "other.pt")
        with pytest.raises(ValueError, match="does not hold a state dict"):
            load_weights(network(2), tmp_path / "other.pt")


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_refused_and_the_model_is_unchanged(
    tmp_path: Path, suffix: str, share: float
) -> None:
    path = tmp_path / f"weights.{suffix}"
    state = network(1).state_dict()
    save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    model = network(2)
    before = state_of(model)
    with pytest.raises(ValueError, match="is not a whole"):
        load_weights(model, path)
    assert_same(model, before)


class Flat(nn.Module):
    """What `Nested` does, its layers in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.middle, self.head = nn.Linear(4, 4), nn.Linear(4, 3)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4)))
        self.top = nn.Linear(4, 3)


def test_weights_of_another_hierarchy_are_paired_in_order_and_it_is_said() -> None:
    source, model = Flat(), Nested()
    with pytest.warns(UserWarning, match="all 10 tensors were paired in the order in which they are stored"):
        pairs = load_weights(model, source.state_dict())
    assert pairs["middle.bias"] == "body.1.1.bias"
    assert torch.equal(model.get_parameter("body.1.1.weight"), source.middle.weight)


def named(*names: str) -> nn.Sequential:
    layers = (nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 2))
    return nn.Sequential(OrderedDict(zip(names, layers, strict=True)))


def test_alike_layers_of_other_names_are_paired_as_they_are_stored_and_not_by_the_alphabet() -> None:
    source, model = named("inp", "up", "down", "out"), named("stem", "fc1", "fc2", "head")
    with pytest.warns(UserWarning, match="all 8 tensors were paired in the order in which they are stored"):
        pairs = load_weights(model, source.state_dict())
    assert pairs["up.weight"] == "fc1.weight"
    x = torch.randn(4, 8)
    torch.testing.assert_close(model(x), source(x))


def test_a_file_that_sorts_its_names_is_paired_by_their_numbers(tmp_path: Path) -> None:
    def blocks(name: str) -> nn.Module:
        model = nn.Module()
        model.add_module(name, nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(12))))
        return model

    source, model = blocks("blocks"), blocks("layers")
    save_file(source.state_dict(), tmp_path / "weights.safetensors")
    pairs = load_weights(model, tmp_path / "weights.safetensors")
    assert pairs == {f"blocks.{number}.weight": f"layers.{number}.weight" for number in range(12)}


@pytest.mark.parametrize("change", ["order", "last name", "shape"])
def test_weights_that_do_not_fit_in_order_are_refused(change: str) -> None:
    state = state_of(Flat())
    if change == "order":
        state = dict(reversed(state.items()))
    elif change == "last name":
        state = {key.replace("running_mean", "mean"): tensor for key, tensor in state.items()}
    else:
        state["head.bias"] = torch.zeros(5)
    model = Nested()
    before = state_of(model)
    with pytest.raises(ValueError, match="the weights do not fit Nested"):
        load_weights(model, state)
    assert_same(model, before)
