"""Substitution: the original untouched, all or nothing in place, merged back exactly, every standard verb."""

from __future__ import annotations

import copy
import dataclasses
import functools
import io
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from representatives import NAMES
from snapshots import snapshot
from understudy.layers import Conv, Layer, Linear, SeparableConv
from understudy.layers.replacement import Spec
from understudy.planning.plan import Plan
from understudy.planning.request import Spatial
from understudy.students.substitute import separate

SPATIAL: tuple[Spatial, ...] = ("separable", "unfolded")


class Small(nn.Module):
    """Square, strided, 1×1 and one-dimensional convolutions, a normalisation, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.square = nn.Conv2d(8, 12, 3, stride=2, padding=1, padding_mode="reflect")
        self.point = nn.Conv2d(12, 16, 1, bias=False)
        self.over_time = nn.Conv1d(16, 12, 5, padding=2, dilation=1)
        self.hidden = nn.Linear(12, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.square(torch.relu(self.norm(self.stem(x)))))
        x = torch.relu(self.over_time(self.point(x).flatten(2)))
        y: Tensor = self.head(torch.relu(self.hidden(x.mean(dim=2))))
        return y


REPLACED = ["square", "point", "over_time", "hidden"]


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A network with weights that are always the same, made without touching the global random state."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def small(dtype: torch.dtype = torch.float32) -> nn.Module:
    return seeded(Small).to(dtype)


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def image(batch: int = 2, dtype: torch.dtype = torch.float32) -> Tensor:
    return values(batch, 3, 8, 8, dtype=dtype)


def student_of(
    transform: str, spatial: Spatial = "separable", dtype: torch.dtype = torch.float32
) -> nn.Module:
    model = small(dtype)
    return us.substitute(model, us.plan(model, transform, scale=0.4, spatial=spatial))


def with_knobs(plan: Plan, knob: Callable[[int, int], int]) -> Plan:
    """The plan with knobs of our own, also such as cost more than the dense layer; in × out → knob."""
    layers = [
        dataclasses.replace(
            layer, spec=Spec(plan.request.label, knob(layer.matrix_in_features, layer.out_features))
        )
        for layer in plan.layers
    ]
    return dataclasses.replace(plan, layers=tuple(layers))


def assert_near(got: Tensor, wanted: Tensor, relative: float = 1e-10) -> None:
    assert got.shape == wanted.shape
    error, size = float((got - wanted).detach().abs().max()), float(wanted.detach().abs().max())
    assert error <= relative * size, f"off by {error:.1e} of {size:.1e}"


def layer_at(model: nn.Module, path: str) -> Layer:
    module = model.get_submodule(path)
    assert isinstance(module, Layer)
    return module


# ---- the original is untouched ---------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["project", "fresh"])
@pytest.mark.parametrize("transform", NAMES)
def test_the_original_and_the_random_state_are_untouched(transform: str, init: Any) -> None:
    model = small()
    model.get_submodule("norm").eval()
    model.get_parameter("hidden.weight").requires_grad_(False)
    model.get_submodule("hidden").register_forward_hook(lambda *_: None)
    plan = us.plan(model, transform, scale=0.4)
    before = snapshot(model)
    student = us.substitute(model, plan, init=init)
    assert snapshot(model) == before
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(1.0)
        student.train()(image())  # moves the running statistics
    assert snapshot(model) == before
    merged = us.merge(student)
    assert snapshot(model) == before
    assert not any(isinstance(module, Layer) for module in merged.modules())


def test_the_student_has_the_planned_layers_and_the_planned_size() -> None:
    model = small()
    plan = us.plan(model, "low_rank", scale=0.4)
    student = us.substitute(model, plan)
    kinds = {path: type(student.get_submodule(path)) for path in REPLACED}
    assert kinds == {"square": SeparableConv, "point": Conv, "over_time": SeparableConv, "hidden": Linear}
    assert type(student.get_submodule("head")) is nn.Linear
    assert sum(parameter.numel() for parameter in student.parameters()) == plan.params
    unfolded = us.substitute(model, us.plan(model, "low_rank", scale=0.4, spatial="unfolded"))
    assert {type(unfolded.get_submodule(path)) for path in ("square", "over_time")} == {Conv}


def test_an_unknown_start_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="init 'zeros' is not one of project, fresh"):
        us.substitute(small(), us.plan(small(), "low_rank", scale=0.4), init="zeros")  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", [us.substitute, us.substitute_], ids=["copy", "in_place"])
@pytest.mark.parametrize(
    ("plan", "way"),
    [
        (
            "low_rank",
            "plan is 'low_rank', the name of a transform: make a plan first, us.plan(model, \"low_rank\",",
        ),
        ("plan.json", "plan is 'plan.json', a path: Plan.load reads a plan from a file"),
        (Path("plan.json"), "plan is a path: Plan.load reads a plan from a file"),
        ({"layers": []}, 'plan is a dict: us.plan(model, "low_rank", ratio=0.5) makes a plan'),
    ],
)
def test_what_is_not_a_plan_is_refused_with_the_way_to_one(plan: Any, way: str, verb: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(way)):
        verb(small(), plan)


# ---- in place --------------------------------------------------------------------------------------------


def test_in_place_returns_the_model_itself_and_equals_the_copy() -> None:
    model = small()
    plan = us.plan(model, "tensor_train", scale=0.4)
    wanted = us.substitute(model, plan)
    assert us.substitute_(model, plan) is model
    assert [type(m) for m in model.modules()] == [type(m) for m in wanted.modules()]
    assert_near(model.eval()(image()), wanted.eval()(image()), 0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_in_place_is_all_or_nothing(bad: float) -> None:
    model = small()
    plan = us.plan(model, "low_rank", scale=0.4)
    with torch.no_grad():
        model.get_parameter("hidden.weight")[3, 2] = bad  # the last site, after three good ones
    before = snapshot(model)
    with pytest.raises(ValueError, match="the weight of 'hidden' holds NaN or infinite values"):
        us.substitute_(model, plan)
    assert snapshot(model) == before


def test_in_place_changes_nothing_when_a_transform_fails_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    plan = us.plan(model, "low_rank", scale=0.4)
    before = snapshot(model)

    def fail(self: Any, matrix: Tensor) -> None:  # noqa: ARG001
        if self.out_features == 16 and self.in_features == 12:
            raise RuntimeError("the decomposition did not converge")

    monkeypatch.setattr(us.get_transform("low_rank"), "project_", fail)
    with pytest.raises(RuntimeError, match="did not converge"):
        us.substitute_(model, plan)
    assert snapshot(model) == before


@pytest.mark.parametrize("transform", NAMES)
def test_in_place_works_on_a_model_that_is_itself_the_site(transform: str) -> None:
    model = seeded(lambda: nn.Conv2d(8, 8, 3))
    plan = us.plan(model, transform, scale=0.4)
    wanted = us.substitute(model, plan)
    assert us.substitute_(model, plan) is model
    assert isinstance(model, Layer)
    assert_near(model(values(1, 8, 5, 5)), wanted(values(1, 8, 5, 5)), 0)


@pytest.mark.parametrize("transform", NAMES)
def test_a_model_substituted_in_place_is_as_good_as_a_copy(transform: str) -> None:
    model = small().eval()
    us.substitute_(model, us.plan(model, transform, scale=0.4))
    wanted = model(image())
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    others.append(us.substitute(small(), us.plan(small(), transform, scale=0.4)).eval())
    for other in others:
        other.load_state_dict(model.state_dict())
        assert_near(other(image()), wanted, 0)
    assert_near(us.merge(model)(image()), wanted, 1e-4)
    assert [name for name, _ in model.named_parameters()] == [
        name for name, _ in others[-1].named_parameters()
    ]


class Listed(nn.Module):
    """Calls its layers by a plain list beside their registered names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)
        self.steps = [self.first, self.head]

    def forward(self, x: Tensor) -> Tensor:
        for step in self.steps:
            x = step(x)
        return x


@pytest.mark.parametrize("verb", [us.substitute, us.substitute_], ids=["copy", "in_place"])
def test_a_layer_that_is_called_by_a_plain_list_is_not_bypassed(verb: Any) -> None:
    model = seeded(Listed)
    plan = us.plan(model, "low_rank", knob=1)
    student = verb(model, plan)
    x = values(3, 8)
    assert_near(student(x), student.head(student.first(x)), 0)


# ---- merging ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_a_merged_network_is_plain_and_has_the_same_outputs(transform: str, spatial: Spatial) -> None:
    student = student_of(transform, spatial, torch.float64).eval()
    before = snapshot(student)
    merged = us.merge(student)
    assert snapshot(student) == before
    assert [type(merged.get_submodule(path)) for path in REPLACED] == [
        nn.Conv2d,
        nn.Conv2d,
        nn.Conv1d,
        nn.Linear,
    ]
    assert merged.state_dict().keys() == small().state_dict().keys()
    assert_near(merged(image(5, torch.float64)), student(image(5, torch.float64)))


def test_merging_a_network_that_is_not_substituted_gives_an_equal_copy() -> None:
    model = small()
    merged = us.merge(model)
    assert merged is not model
    assert_near(merged.eval()(image()), model.eval()(image()), 0)


def test_merging_carries_over_mode_hooks_and_what_is_frozen() -> None:
    student = student_of("low_rank")
    hidden = layer_at(student, "hidden").eval()
    for parameter in hidden.parameters():
        parameter.requires_grad_(False)
    seen: list[torch.Size] = []
    hidden.register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape))
    merged = us.merge(student)
    assert (merged.get_submodule("hidden").training, merged.get_submodule("square").training) == (False, True)
    merged(image())
    assert seen == [(2, 16)]
    assert {name: p.requires_grad for name, p in merged.named_parameters() if name.startswith("hidden")} == {
        "hidden.weight": False,
        "hidden.bias": False,
    }


class Attending(nn.Module):
    """Self-attention between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(6, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.into(x)
        y: Tensor = self.head(self.attention(x, x, x, need_weights=False)[0])
        return y


def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("transform", NAMES)
@pytest.mark.parametrize(
    ("make", "width", "projection"),
    [(Attending, 6, "attention.out_proj"), (encoder_layer, 8, "self_attn.out_proj")],
    ids=["MultiheadAttention", "TransformerEncoderLayer"],
)
def test_attention_uses_its_substituted_projection(
    make: Callable[[], nn.Module], width: int, projection: str, transform: str, training: bool
) -> None:
    model = seeded(make).double().train(training)
    student = us.substitute(model, us.plan(model, transform, scale=0.4, include=["*"]))
    layer = layer_at(student, projection)
    x = values(2, 5, width, dtype=torch.float64)
    student(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name
    merged = us.merge(student)
    assert merged.training == training
    assert_near(merged(x), student(x))
    with torch.no_grad():  # PyTorch's fused path reads the weights by itself
        assert_near(merged(x), student(x))
        for parameter in layer.parameters():
            parameter.zero_()
        assert float((merged(x) - student(x)).abs().max()) > 1e-3


# ---- sharing, and a model that is one layer --------------------------------------------------------------


class Sharing(nn.Module):
    """One layer under two names, called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.again = self.first
        self.inner = nn.ModuleList([self.first, nn.Linear(8, 8)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.inner[1](self.inner[0](self.again(self.first(x)))))
        return y


@pytest.mark.parametrize("verb", [us.substitute, us.substitute_], ids=["copy", "in_place"])
def test_a_shared_module_stays_shared(verb: Any) -> None:
    model = seeded(Sharing).double()
    plan = us.plan(model, "low_rank", knob=2)
    assert [layer.path for layer in plan.layers] == ["first", "inner.1"]
    student = verb(model, plan)
    assert isinstance(student.first, Linear)
    assert student.first is student.again is student.inner[0]
    merged: Any = us.merge(student)
    assert type(merged.first) is nn.Linear
    assert merged.first is merged.again is merged.inner[0]
    x = values(4, 8, dtype=torch.float64)
    assert_near(merged(x), student(x))


@pytest.mark.parametrize("transform", NAMES)
def test_a_model_may_itself_be_the_layer(transform: str) -> None:
    for model, x in (
        (nn.Linear(8, 12), values(3, 8, dtype=torch.float64)),
        (nn.Conv2d(8, 12, 3), values(1, 8, 5, 5, dtype=torch.float64)),
    ):
        student = us.substitute(model.double(), us.plan(model, transform, scale=0.4))
        assert isinstance(student, Layer)
        merged = us.merge(student)
        assert type(merged) is type(model)
        assert_near(merged(x), student(x))


# ---- how the stand-ins start -----------------------------------------------------------------------------


def test_unfolded_low_rank_at_full_rank_reproduces_the_outputs() -> None:
    model = small(torch.float64).eval()
    plan = us.plan(model, "low_rank", scale=0.4, spatial="unfolded")
    student = us.substitute(model, with_knobs(plan, min))
    assert_near(student(image(3, torch.float64)), model(image(3, torch.float64)))


def test_unfolded_low_rank_is_the_best_of_its_rank() -> None:
    model = small(torch.float64)
    student = us.substitute(model, us.plan(model, "low_rank", knob=3, spatial="unfolded"))
    for path in REPLACED:
        weight = model.get_parameter(f"{path}.weight").flatten(1)
        u, s, v = torch.linalg.svd(weight, full_matrices=False)
        assert_near(layer_at(student, path).weight.flatten(1), u[:, :3] * s[:3] @ v[:3])


@pytest.mark.parametrize("path", ["square", "over_time"])
def test_separable_projection_is_the_best_fit_of_rank_one_for_every_input_channel(path: str) -> None:
    model = small(torch.float64)
    student = us.substitute(model, us.plan(model, "dense", scale=1))
    weight = model.get_parameter(f"{path}.weight")
    got = layer_at(student, path).weight
    for channel in range(weight.shape[1]):
        u, s, v = torch.linalg.svd(weight[:, channel].flatten(1), full_matrices=False)
        assert_near(got[:, channel].flatten(1), u[:, :1] * s[:1] @ v[:1])


def test_a_kernel_that_is_separable_is_recovered_exactly() -> None:
    pointwise, depthwise = values(6, 4, dtype=torch.float64), values(4, 1, 3, 3, dtype=torch.float64, seed=2)
    got = separate(pointwise[:, :, None, None] * depthwise.transpose(0, 1))
    assert_near(
        got[0][:, :, None, None] * got[1].transpose(0, 1),
        pointwise[:, :, None, None] * depthwise.transpose(0, 1),
    )


@pytest.mark.parametrize("transform", NAMES)
def test_projection_is_nearer_to_the_weight_than_a_fresh_start(transform: str) -> None:
    model = small(torch.float64)
    plan = us.plan(model, transform, scale=0.4)
    projected, fresh = (us.substitute(model, plan, init=init) for init in ("project", "fresh"))
    for path in REPLACED:
        weight = model.get_parameter(f"{path}.weight")
        near, far = (float((layer_at(m, path).weight - weight).detach().norm()) for m in (projected, fresh))
        assert near < far
        assert near <= float(weight.detach().norm()) * (1 + 1e-9)


def wide() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 48, 3),
        nn.Conv2d(48, 64, 3),
        nn.Conv2d(64, 64, 1),
        nn.Conv1d(64, 96, 5),
        nn.Linear(96, 64),
        nn.Linear(64, 8),
    )


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_a_fresh_start_keeps_the_root_mean_square_of_the_weight(transform: str, spatial: Spatial) -> None:
    model = seeded(wide)
    for parameter in model.parameters():
        parameter.data *= 3
    plan = us.plan(model, transform, scale=0.4, spatial=spatial)
    student = us.substitute(model, plan, init="fresh")
    for planned in plan.layers:
        wanted = float(model.get_parameter(f"{planned.path}.weight").detach().square().mean().sqrt())
        got = float(layer_at(student, planned.path).weight.detach().square().mean().sqrt())
        assert got == pytest.approx(wanted, rel=0.2), planned


@pytest.mark.parametrize("transform", NAMES)
def test_a_fresh_start_differs_by_layer_and_follows_from_the_seed(transform: str) -> None:
    model = nn.Sequential(*(nn.Conv2d(16, 16, 3) for _ in range(3)), nn.Linear(16, 2))

    def weights(seed: int) -> list[Tensor]:
        student = us.substitute(model, us.plan(model, transform, scale=0.4, seed=seed), init="fresh")
        return [layer_at(student, path).weight.detach() for path in ("1", "2")]

    first, second = weights(0)
    assert not torch.equal(first, second)
    assert all(map(torch.equal, weights(0), (first, second)))
    assert not any(map(torch.equal, weights(1), (first, second)))


def test_a_fresh_start_for_a_layer_of_zeros_is_not_zero() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    nn.init.zeros_(model[0].get_parameter("weight"))
    student = us.substitute(model, us.plan(model, "low_rank", knob=2), init="fresh")
    assert bool(layer_at(student, "0").weight.any())


@pytest.mark.parametrize("transform", NAMES)
@pytest.mark.parametrize("spatial", SPATIAL)
def test_a_layer_of_zeros_is_projected_to_zeros(transform: str, spatial: Spatial) -> None:
    model = small(torch.float64)
    nn.init.zeros_(model.get_parameter("square.weight"))
    nn.init.zeros_(model.get_parameter("hidden.weight"))
    student = us.substitute(model, us.plan(model, transform, scale=0.4, spatial=spatial))
    for path in ("square", "hidden"):
        weight = layer_at(student, path).weight
        assert bool(weight.isfinite().all())
        assert float(weight.detach().abs().max()) < 1e-12


# ---- what is carried over --------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", NAMES)
def test_biases_are_kept_and_are_copies(transform: str) -> None:
    model, student = small(), student_of(transform)
    for path in REPLACED:
        bias = model.get_submodule(path)._parameters.get("bias")
        got = layer_at(student, path).bias
        assert (bias is None) == (got is None), path
        if bias is not None:
            assert isinstance(got, nn.Parameter)
            assert torch.equal(got, bias)
            assert got is not bias


def test_what_is_frozen_stays_frozen_weight_and_bias_apart() -> None:
    model = small()
    model.get_parameter("hidden.weight").requires_grad_(False)
    model.get_parameter("square.bias").requires_grad_(False)
    model.get_parameter("head.bias").requires_grad_(False)
    student = us.substitute(model, us.plan(model, "low_rank", scale=0.4))
    frozen = {name for name, parameter in student.named_parameters() if not parameter.requires_grad}
    assert frozen == {"hidden.transform.u", "hidden.transform.v", "square.pointwise.bias", "head.bias"}


def test_every_kind_of_hook_is_carried_over() -> None:
    model = small()
    hidden = model.get_submodule("hidden")
    called: list[str] = []
    hidden.register_forward_pre_hook(lambda _module, _inputs: called.append("before"))
    hidden.register_forward_hook(
        lambda _module, _args, kwargs, _output: called.append(f"after {kwargs}"), with_kwargs=True
    )
    hidden.register_full_backward_hook(lambda _module, _inputs, _outputs: called.append("backward"))
    student = us.substitute(model, us.plan(model, "low_rank", scale=0.4))
    student(image()).sum().backward()
    assert called == ["before", "after {}", "backward"]


def test_modes_are_carried_over() -> None:
    model = small().train()
    model.get_submodule("hidden").eval()
    student = us.substitute(model, us.plan(model, "low_rank", scale=0.4))
    assert {path: student.get_submodule(path).training for path in REPLACED} == {
        "square": True,
        "point": True,
        "over_time": True,
        "hidden": False,
    }


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("transform", NAMES)
def test_a_half_precision_model_gives_a_half_precision_student(
    transform: str, dtype: torch.dtype, spatial: Spatial
) -> None:
    model = small(dtype).eval()
    student = us.substitute(model, us.plan(model, transform, scale=0.4, spatial=spatial))
    assert {parameter.dtype for parameter in student.parameters()} == {dtype}
    out = student(image(dtype=dtype))
    assert out.dtype == dtype
    assert bool(out.isfinite().all())
    precise = copy.deepcopy(student).double()
    assert_near(out.double(), precise(image(dtype=dtype).double()), 0.1)
    assert us.merge(student)(image(dtype=dtype)).dtype == dtype


# ---- every standard verb ---------------------------------------------------------------------------------


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_a_state_dict_goes_into_a_fresh_student(transform: str, spatial: Spatial) -> None:
    student = student_of(transform, spatial).eval()
    other = seeded(Small, seed=7)
    fresh = us.substitute(other, us.plan(other, transform, scale=0.4, spatial=spatial, seed=5), init="fresh")
    fresh.load_state_dict(student.state_dict())
    assert_near(fresh.eval()(image()), student(image()), 0)


@pytest.mark.parametrize("transform", NAMES)
def test_copies_and_pickles_compute_the_same_and_stand_apart(transform: str) -> None:
    student = student_of(transform).eval()
    wanted = student(image())
    buffer = io.BytesIO()
    torch.save(student, buffer)
    buffer.seek(0)
    copies = [
        copy.deepcopy(student),
        pickle.loads(pickle.dumps(student)),
        torch.load(buffer, weights_only=False),
    ]
    for other in copies:
        assert_near(other(image()), wanted, 0)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
    assert_near(student(image()), wanted, 0)


@pytest.mark.parametrize("transform", NAMES)
def test_a_student_moves_between_types_and_devices(transform: str) -> None:
    student = student_of(transform).eval()
    wanted = student(image())
    assert_near(copy.deepcopy(student).to(torch.float64)(image(dtype=torch.float64)), wanted, 1e-4)
    assert_near(copy.deepcopy(student).half()(image().half()).float(), wanted, 0.1)
    assert_near(copy.deepcopy(student).bfloat16()(image().bfloat16()).float(), wanted, 0.3)
    assert_near(copy.deepcopy(student).half().float()(image()), wanted, 0.1)
    weightless = copy.deepcopy(student).to("meta")
    assert weightless(image().to("meta")).shape == (2, 10)
    assert all(t.is_meta for t in (*weightless.parameters(), *weightless.buffers()))
    assert_near(student.to(memory_format=torch.channels_last)(image()), wanted, 1e-4)  # type: ignore[call-overload]


@pytest.mark.parametrize("transform", NAMES)
def test_a_training_step_reaches_every_parameter(transform: str) -> None:
    student = student_of(transform).train()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    labels = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8])
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(student(image(8)), labels)
        loss.backward()
        assert all(p.grad is not None and bool(p.grad.any()) for p in student.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


def types_under_autocast(model: nn.Module) -> dict[str, torch.dtype]:
    """The type of the output of every layer that is replaced."""
    found: dict[str, torch.dtype] = {}

    def note(path: str, _module: nn.Module, _inputs: object, output: Tensor) -> None:
        found[path] = output.dtype

    for path in REPLACED:
        model.get_submodule(path).register_forward_hook(functools.partial(note, path))
    with torch.autocast("cpu", torch.bfloat16):
        model(image())
    return found


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_mixed_precision_gives_every_layer_the_type_of_the_dense_one(
    transform: str, spatial: Spatial
) -> None:
    assert types_under_autocast(student_of(transform, spatial)) == types_under_autocast(small())


def test_train_and_eval_reach_every_part() -> None:
    student = student_of("low_rank")
    assert not any(module.training for module in student.eval().modules())
    assert all(module.training for module in student.train().modules())


def test_hooks_on_a_student_are_called() -> None:
    student = student_of("tensor_train")
    seen: list[str] = []
    for path in REPLACED:
        student.get_submodule(path).register_forward_hook(
            functools.partial(lambda name, *_: seen.append(name), path)
        )
    student(image())
    assert seen == REPLACED


class Collecting(nn.Module):
    """Collects what its layers give by hooks of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner, self.head = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)
        self.up = nn.ConvTranspose2d(8, 8, 1)
        self.found: list[Tensor] = []
        for layer in (self.stem, self.inner, self.up):
            layer.register_forward_hook(self.collect)

    def collect(self, _: nn.Module, __: object, output: Tensor) -> None:
        self.found.append(output)

    def forward(self, x: Tensor) -> Tensor:
        self.found = []
        self.up(self.inner(self.stem(x)))
        out: Tensor = self.head(sum(self.found, torch.zeros(())))
        return out


@torch.no_grad()
def test_hooks_that_a_network_has_on_its_layers_are_those_of_its_copies(tmp_path: Path) -> None:
    model = Collecting().eval()
    plan = us.plan(model, "low_rank", knob=2, example=image())
    assert [layer.path for layer in plan] == ["inner", "up.taps"]
    student = us.substitute(model, plan)
    us.save(student, tmp_path / "file")
    for made in (student, us.load(tmp_path / "file", Collecting()), us.merge(student), us.lower(student)):
        torch.testing.assert_close(made(image()), student(image()))
        assert isinstance(made, Collecting)
        assert len(made.found) == 3
    assert not model.found


class Brief(nn.Module):
    """Two square convolutions and a linear layer, few operations besides: for the compilers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.square = nn.Conv2d(8, 8, 3, stride=2)
        self.again = nn.Conv2d(8, 8, 3, padding=1)
        self.hidden = nn.Linear(8, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.square(self.stem(x)))
        y: Tensor = self.head(self.hidden(x.mean(dim=(2, 3))))
        return y


def brief_student(transform: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """One square convolution made separable, the other kept whole."""
    model = seeded(Brief).to(dtype)
    plan = us.plan(model, transform, scale=0.4)
    unfolded = us.plan(model, transform, scale=0.4, spatial="unfolded", include=["again"])
    layers = tuple(layer for layer in plan.layers if layer.path != "again") + unfolded.layers
    return us.substitute(model, dataclasses.replace(plan, layers=layers))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own doing
@pytest.mark.parametrize("transform", ["low_rank", "tucker", "hashed", "shuffle"])  # the contract has all
def test_one_graph_is_compiled_and_agrees(transform: str) -> None:
    student = brief_student(transform, torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(student, fullgraph=True, backend="aot_eager")
    x = image(4).requires_grad_()
    outputs, gradients = [], []
    for run in (student, compiled):
        outputs.append(run(x))
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), [x, *student.parameters()]))
    assert_near(outputs[1], outputs[0], 1e-5)
    for one, other in zip(*gradients, strict=True):
        assert_near(one, other, 1e-4)


@pytest.mark.parametrize("transform", ["low_rank", "tucker", "hashed", "shuffle"])  # the contract has all
def test_an_exported_student_takes_any_batch(transform: str) -> None:
    student = brief_student(transform).eval()
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(student, (image(3, torch.float64),), dynamic_shapes=({0: batch},))
    for count in (1, 2, 7, 64):
        assert_near(program.module()(image(count, torch.float64)), student(image(count, torch.float64)))


def test_data_parallel_on_the_processor_runs_the_student() -> None:
    for transform in NAMES:
        student = student_of(transform).eval()
        assert_near(nn.DataParallel(student)(image()), student(image()), 0)


# ---- a plan for another network, and bad weights ---------------------------------------------------------


def apply(model: nn.Module, plan: Plan) -> str:
    """The message with which both verbs refuse; the model stays as it was."""
    before = snapshot(model)
    messages = []
    for verb in (us.substitute, us.substitute_):
        with pytest.raises(ValueError, match=f"the plan does not fit {type(model).__name__}: ") as caught:
            verb(model, plan)
        messages.append(str(caught.value))
    assert snapshot(model) == before
    assert messages[0] == messages[1]
    return messages[0]


def small_plan() -> Plan:
    return us.plan(small(), "low_rank", scale=0.4)


def test_a_plan_with_other_paths_is_refused_with_the_nearest() -> None:
    model = small()
    model.add_module("hiddens", model._modules.pop("hidden"))
    assert "no module 'hidden' (did you mean 'hiddens'?)" in apply(model, small_plan())


def test_a_plan_with_other_shapes_is_refused_with_both() -> None:
    model: Any = small()
    model.hidden = nn.Linear(12, 17)
    assert "'hidden' is a linear with weight (17, 12), not a linear with (16, 12)" in apply(
        model, small_plan()
    )


def test_a_plan_with_another_kind_of_layer_is_refused() -> None:
    model: Any = small()
    model.point = nn.Linear(12, 16)
    assert "'point' is a linear with weight (16, 12), not a conv2d with (16, 12, 1, 1)" in apply(
        model, small_plan()
    )


def test_a_plan_for_a_network_that_is_already_substituted_is_refused() -> None:
    message = apply(student_of("low_rank"), small_plan())
    assert "'square': already substituted" in message
    assert "(and more)" in message


def test_a_plan_for_a_layer_that_became_special_is_refused_with_the_reason() -> None:
    model: Any = small()
    nn.utils.parametrizations.spectral_norm(model.hidden)
    assert "'hidden'" in apply(model, small_plan())
    model = small()
    model.head.weight = nn.Parameter(torch.zeros(16, 12))
    model.hidden.weight = model.head.weight
    assert "'hidden': its weight is shared with head" in apply(model, small_plan())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("transform", NAMES)
def test_weights_that_are_not_finite_are_refused_and_named(transform: str, bad: float) -> None:
    model = small()
    with torch.no_grad():
        model.get_parameter("point.weight")[0, 0] = bad
    plan = us.plan(model, transform, scale=0.4)
    assert "the weight of 'point' holds NaN or infinite values" in apply(model, plan)


def test_complex_weights_are_refused_and_named() -> None:
    model: Any = small()
    model.hidden = nn.Linear(12, 16, dtype=torch.complex64)
    assert "'hidden': its weight is torch.complex64, not floating point" in apply(model, small_plan())


def test_a_plan_with_an_illegal_knob_is_refused_before_anything_is_made() -> None:
    model = small()
    before = snapshot(model)
    with pytest.raises(ValueError, match=r"rank 999 is not in 1\.\.8 for 8 → 12"):
        us.substitute_(model, with_knobs(small_plan(), lambda *_: 999))
    assert snapshot(model) == before


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo's own
@pytest.mark.parametrize("name", ["low_rank", "tensor_train", "hashed"])  # the contract has all of them
def test_a_compiled_student_takes_batches_of_any_size_in_one_graph(name: str) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
    plan = us.plan(model, name, scale=0.2)
    student = us.substitute(model, plan, init="fresh").eval()
    compiled = torch.compile(student, fullgraph=True, backend="eager")
    for batch in (4, 5, 7, 300):
        x = torch.randn(batch, 64, generator=torch.Generator().manual_seed(batch))
        torch.testing.assert_close(compiled(x), student(x), rtol=1e-4, atol=1e-5)
    torch.compiler.reset()


def test_an_encoder_layer_calls_its_stand_ins_in_evaluation_too() -> None:
    dense = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    plan = us.plan(dense, "low_rank", knob=4, include=["linear1", "linear2"])
    student = us.substitute(dense, plan).eval()
    parts = [student.get_submodule("linear1"), student.get_submodule("linear2")]
    called: list[nn.Module] = []
    for part in parts:
        part.register_forward_hook(lambda module, *_: called.append(module))
    x = torch.randn(2, 5, 32)
    with torch.no_grad():
        out = student(x)
        assert called == parts
        merged = us.merge(student)
        torch.testing.assert_close(merged(x), out)
    assert merged.activation_relu_or_gelu == dense.activation_relu_or_gelu != 0


def test_parameters_can_be_reset_after_memory_was_given_without_values() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.Conv1d(8, 8, 1), nn.Linear(8, 2))
    student = us.substitute(model, us.plan(model, "low_rank", knob=2, include=["*"]))
    student.to_empty(device="cpu")
    for parameter in student.parameters():
        nn.init.constant_(parameter, math.nan)
    for layer in student.modules():
        if isinstance(layer, Linear | Conv | nn.Linear | us.Transform):
            layer.reset_parameters()
    assert all(bool(parameter.isfinite().all()) for parameter in student.parameters())
