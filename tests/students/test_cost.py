"""Cost: totals that are sums, mult-adds that really ran, bytes of the real file, a model left alone."""

from __future__ import annotations

import collections
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import understudy as us
from reading import ReadingAttention
from representatives import NAMES
from snapshots import snapshot


class Small(nn.Module):
    """Convolutions, a normalisation with buffers, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.square = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.again = nn.Conv2d(16, 16, 3, padding=1)
        self.hidden = nn.Linear(16, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(torch.relu(self.square(torch.relu(self.norm(self.stem(x))))))
        y: Tensor = self.head(torch.relu(self.hidden(x.mean(dim=(2, 3)))))
        return y


IMAGE = torch.zeros(2, 3, 8, 8)


def student(transform: str, **options: Any) -> nn.Module:
    return us.substitute(Small(), us.plan(Small(), transform, scale=0.4, **options))


class Tied(nn.Module):
    """An embedding whose weight is the decoder's."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.hidden = nn.Linear(6, 6)
        self.decoder = nn.Linear(6, 11, bias=False)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.decoder(self.hidden(self.embedding(tokens)))
        return y


class Buffers(nn.Module):
    """Buffers of every type that a file can hold, one that is not saved, statistics without parameters."""

    def __init__(self) -> None:
        super().__init__()
        types = (
            "bool",
            "uint8",
            "int8",
            "int16",
            "int32",
            "int64",
            "float16",
            "bfloat16",
            "float32",
            "float64",
        )
        for size, name in enumerate(types):
            self.register_buffer(f"of_{name}", torch.zeros(size, 3).to(getattr(torch, name)))
        self.register_buffer("unsaved", torch.zeros(100), persistent=False)
        self.norm = nn.BatchNorm1d(4, affine=False)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.norm(x))
        return y


class Umlaut(nn.Module):
    """A path that is not ASCII."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"größe": nn.Linear(8, 8), "head": nn.Linear(8, 8)})

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers["head"](self.layers["größe"](x))
        return y


def umlaut_student() -> nn.Module:
    return us.substitute(Umlaut(), us.plan(Umlaut(), "hashed", scale=0.5))


MODELS: list[Any] = [
    pytest.param(Small, IMAGE, id="small"),
    pytest.param(lambda: Small().half(), IMAGE.half(), id="half"),
    pytest.param(lambda: Small().bfloat16(), IMAGE.bfloat16(), id="bfloat16"),
    pytest.param(lambda: Small().double(), IMAGE.double(), id="double"),
    pytest.param(Tied, torch.zeros(1, 3, dtype=torch.long), id="tied"),
    pytest.param(Buffers, torch.zeros(3, 4), id="buffers"),
    pytest.param(umlaut_student, torch.zeros(3, 8), id="umlaut"),
    pytest.param(nn.ReLU, torch.zeros(3), id="nothing"),
    pytest.param(lambda: nn.Linear(3, 4), torch.zeros(2, 3), id="one layer"),
    pytest.param(lambda: student("hashed").half(), IMAGE.half(), id="half hashed"),
    pytest.param(
        lambda: student("hashed", options={"indexing": "independent"}), IMAGE, id="independent hashed"
    ),
    *(pytest.param(lambda name=name: student(name), IMAGE, id=name) for name in NAMES),
    *(
        pytest.param(lambda name=name: student(name, spatial="unfolded"), IMAGE, id=f"{name} unfolded")
        for name in NAMES
    ),
]


@pytest.mark.parametrize(("make", "example"), MODELS)
def test_totals_are_the_sums_of_the_layers(make: Callable[[], nn.Module], example: Tensor) -> None:
    model = make()
    counted = us.cost(model, example)
    assert counted.params == sum(layer.params for layer in counted.layers)
    assert counted.params == sum(parameter.numel() for parameter in model.parameters())
    assert counted.mult_adds == sum(layer.mult_adds for layer in counted.layers)
    assert counted.ideal_mult_adds == sum(layer.ideal_mult_adds for layer in counted.layers)
    assert counted.ideal_mult_adds <= counted.mult_adds


@pytest.mark.parametrize(("make", "example"), MODELS)
def test_bytes_are_those_of_the_file_in_total_and_by_layer(
    make: Callable[[], nn.Module], example: Tensor, tmp_path: Path
) -> None:
    model = make()
    us.save(model, tmp_path / "network")
    data = (tmp_path / "network").read_bytes()
    counted = us.cost(model, example)
    assert counted.bytes == len(data)
    (header,) = struct.unpack("<Q", data[:8])
    assert sum(layer.bytes for layer in counted.layers) == len(data) - 8 - header
    assert "__metadata__" in json.loads(data[8 : 8 + header])


def test_the_same_layers_are_listed_on_every_count() -> None:
    model = student("hashed")
    assert len({us.cost(model, IMAGE) for _ in range(5)}) == 1


def test_a_substituted_layer_is_one_layer() -> None:
    counted = us.cost(student("low_rank"), IMAGE)
    assert [(layer.path, layer.type) for layer in counted.layers] == [
        ("stem", "Conv2d"),
        ("norm", "BatchNorm2d"),
        ("square", "SeparableConv"),
        ("again", "SeparableConv"),
        ("hidden", "Linear"),
        ("head", "Linear"),
    ]


def test_a_network_written_by_others_counts_as_pytorch_counts_it() -> None:
    with torch.device("meta"):
        model = us.create_model("wrn_16_2").eval()
        image = torch.empty(1, 3, 32, 32)
        with FlopCounterMode(display=False) as counter:
            model(image)
    assert us.cost(model, image).mult_adds == counter.get_total_flops() // 2


@pytest.mark.parametrize("transform", NAMES)
@pytest.mark.parametrize("spatial", ["separable", "unfolded"])
def test_counting_without_weights_agrees_with_counting_with_them(transform: str, spatial: Any) -> None:
    model = student(transform, spatial=spatial)
    assert us.cost(model, IMAGE, meta=False) == us.cost(model, IMAGE)
    assert us.cost(model.to("meta"), IMAGE) == us.cost(student(transform, spatial=spatial), IMAGE)


def test_forming_is_executed_and_not_ideal() -> None:
    model = us.substitute(nn.Linear(64, 64), us.plan(nn.Linear(64, 64), "tucker", scale=0.3))
    one, many = us.cost(model, torch.zeros(1, 64)), us.cost(model, torch.zeros(10_000, 64))
    assert one.ideal_mult_adds < one.mult_adds
    assert many.ideal_mult_adds == 10_000 * one.ideal_mult_adds
    assert many.mult_adds - many.ideal_mult_adds < many.mult_adds / 100


def test_forming_for_attention_that_reads_the_weight_is_executed_and_not_ideal() -> None:
    model = ReadingAttention(16, 2)
    plan = us.plan(model, "low_rank", knob=2, include=["out_proj"], example=(torch.zeros(5, 1, 16),) * 3)
    counted = us.cost(us.substitute(model, plan), (torch.zeros(5, 1, 16),) * 3)
    dense = us.cost(model, (torch.zeros(5, 1, 16),) * 3)
    assert counted.mult_adds == dense.mult_adds + 16 * 2 * 16
    assert counted.ideal_mult_adds == dense.ideal_mult_adds


class Direct(nn.Module):
    """Calls the forward of a layer, not the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.hidden.forward(x))
        return y


def test_work_by_a_direct_call_of_forward_is_in_the_layers() -> None:
    for model in (Direct(), us.substitute(Direct(), us.plan(Direct(), "low_rank", knob=2))):
        counted = us.cost(model, torch.zeros(3, 8))
        assert counted.mult_adds > 3 * 16
        assert counted.mult_adds == sum(layer.mult_adds for layer in counted.layers)


def test_a_plan_of_layers_that_are_called_by_their_forward_is_one_of_calls() -> None:
    plan = us.plan(Direct(), "low_rank", knob=2, example=(3, 8))
    assert [layer.path for layer in plan] == ["hidden"]
    assert plan.mult_adds == us.cost(us.substitute(Direct(), plan), (3, 8)).mult_adds
    assert not plan["hidden"].note


class Choosy(nn.Module):
    """Calls what is exactly of a class."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) if type(layer) is nn.Linear else torch.relu(x)
        return x


def test_a_network_that_looks_at_the_class_of_its_layers_is_counted_as_it_runs() -> None:
    assert us.cost(Choosy(), (3, 8)).mult_adds == 3 * (8 * 8 + 8 * 4)


# ---- examples --------------------------------------------------------------------------------------------


class Two(nn.Module):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(left), self.layer(right)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_shape_is_an_example_of_the_type_of_the_network(dtype: torch.dtype) -> None:
    assert us.cost(nn.Linear(4, 6).to(dtype), (2, 4), meta=False).mult_adds == 48
    assert us.cost(nn.Linear(4, 6).to(dtype), (2, 4)).mult_adds == 48


def test_an_example_may_be_a_tensor_a_tuple_a_list_or_a_mapping() -> None:
    left, right = torch.zeros(2, 4), torch.zeros(3, 4)
    examples: list[Any] = [
        (left, right),
        [left, right],
        {"left": left, "right": right},
        {"right": right, "left": left},
        collections.UserDict({"left": left, "right": right}),  # as a tokenizer gives
    ]
    assert {us.cost(Two(), example).mult_adds for example in examples} == {5 * 24}
    assert us.cost(nn.Linear(4, 6), left).mult_adds == 2 * 24


def test_an_example_of_the_wrong_shape_is_named_and_says_why() -> None:
    with pytest.raises(
        ValueError, match=r"Small cannot run on an example of shape \[\(2, 5, 8, 8\)\]: .*channel"
    ):
        us.cost(Small(), torch.zeros(2, 5, 8, 8))


class Looking(nn.Module):
    """Its control flow depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return self.layer(y[:, :4]) if bool((x > 0).any()) else y


def test_a_network_that_looks_at_values_is_counted_with_them_by_itself() -> None:
    assert us.cost(Looking(), torch.ones(2, 4)).mult_adds == 2 * 48
    assert us.cost(Looking(), torch.zeros(2, 4)).mult_adds == 48


def test_a_weightless_network_that_looks_at_values_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Looking cannot run on an example of shape \[\(2, 4\)\]"):
        us.cost(Looking().to("meta"), torch.ones(2, 4))


class Listing(nn.Module):
    """Holds a tensor in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)
        self.offsets = [torch.zeros(6)]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + self.offsets[0]
        return y


def test_a_network_with_a_tensor_in_a_list_is_counted() -> None:
    assert us.cost(Listing(), torch.ones(2, 4)).mult_adds == 48


# ---- the model is left as it was -------------------------------------------------------------------------


class Inverting(nn.Module):
    """Runs an operation that has no price, after a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.linalg.inv(self.norm(x))
        return y


@pytest.mark.parametrize("meta", [True, False])
def test_a_model_is_left_exactly_as_it_was(meta: bool) -> None:
    model = student("low_rank").train()
    model.get_submodule("norm").eval()
    model.get_submodule("hidden").register_forward_hook(lambda *_: None)
    model.get_submodule("head").register_full_backward_hook(lambda *_: None)
    before, attributes = snapshot(model), {path: set(vars(m)) for path, m in model.named_modules()}
    us.cost(model, IMAGE, meta=meta)
    assert snapshot(model) == before
    assert {path: set(vars(m)) for path, m in model.named_modules()} == attributes
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize(
    ("make", "example", "error"),
    [(Inverting, torch.ones(4, 4), us.UnknownOperationError), (Inverting, torch.ones(4, 5), ValueError)],
    ids=["unknown operation", "wrong shape"],
)
def test_a_model_is_left_exactly_as_it_was_when_the_count_fails(
    make: Callable[[], nn.Module], example: Tensor, error: type[Exception], meta: bool
) -> None:
    model = make()
    before = snapshot(model)
    with pytest.raises(error):
        us.cost(model, example, meta=meta)
    assert snapshot(model) == before
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.is_grad_enabled()
    assert us.cost(Small(), IMAGE).mult_adds > 0


@pytest.mark.parametrize("enabled", [True, False])
def test_the_fused_attention_switch_is_left_as_it_was(enabled: bool) -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(enabled)
        us.cost(nn.TransformerEncoderLayer(8, 2, 16), torch.zeros(5, 1, 8))
        assert torch.backends.mha.get_fastpath_enabled() == enabled
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def test_dropout_is_off_while_counting_and_the_inputs_are_left_alone() -> None:
    model = nn.Sequential(nn.Dropout(1.0), nn.ReLU(inplace=True), nn.Linear(4, 2))
    example = torch.full((2, 4), -1.0)
    us.cost(model, example)
    assert bool((example == -1).all())
    us.cost(model, example, meta=False)
    assert bool((example == -1).all())


@pytest.mark.parametrize("spatial", ["unfolded", "separable", "inside"])
def test_what_is_kept_in_inference_is_made_once_and_not_counted_there(spatial: Any) -> None:
    made = student("low_rank", spatial=spatial)
    for _, layer in us.stand_ins(made):
        layer.execution = us.Execution(inference="formed")
    dense, counted = us.cost(Small(), IMAGE), us.cost(made, IMAGE)
    assert counted.mult_adds == us.cost(student("low_rank", spatial=spatial), IMAGE).mult_adds
    assert dense.inference_mult_adds == dense.mult_adds
    assert "in inference" not in str(dense)
    if spatial == "separable":  # only the pointwise maps are formed, and the taps run beside them
        pointwise = 2 * 4 * 4 * (8 * 16 + 16 * 16) - 2 * 4 * 4 * 9 * (8 * 16 + 16 * 16)
        taps = 2 * 4 * 4 * 9 * (8 + 16)
        assert counted.inference_mult_adds == dense.mult_adds + pointwise + taps
    else:
        assert counted.inference_mult_adds == dense.mult_adds


# ---- printing --------------------------------------------------------------------------------------------


def test_a_cost_prints_every_layer_and_the_totals() -> None:
    counted = us.cost(student("low_rank"), IMAGE)
    text = str(counted)
    for layer in counted.layers:
        assert layer.path in text
    assert f"{counted.params:,} parameters" in text
    assert f"{counted.mult_adds:,} mult-adds as executed" in " ".join(text.split())
    assert f"{counted.bytes:,} bytes on disk" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 140
    assert "(the network itself)" in str(us.cost(nn.Linear(4, 6), torch.zeros(2, 4)))
