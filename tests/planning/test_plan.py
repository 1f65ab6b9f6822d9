"""Plans: budgets met and never exceeded, published counts, costs that are those of the network it makes."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import understudy as us
from reading import reading_encoder
from representatives import NAMES
from snapshots import snapshot
from understudy.planning.plan import Plan, PlannedLayer
from understudy.planning.request import Spatial
from understudy.planning.sites import Sites

CONTINUOUS = ["low_rank", "tensor_train", "tucker", "acdc", "hashed"]
SPATIAL: tuple[Spatial, ...] = ("separable", "unfolded")


class Mixed(nn.Module):
    """Every kind of site: 1×1 and k×k, strided, dilated, over time, linear; two of them are called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.strided = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.dilated = nn.Conv2d(16, 16, (3, 1), padding=(2, 0), dilation=(2, 1), bias=False)
        self.point = nn.Conv2d(16, 24, 1, stride=2)
        self.over_time = nn.Conv1d(24, 20, 5, padding=2, stride=2)
        self.norm = nn.BatchNorm1d(20)
        self.hidden = nn.Linear(20, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.strided(torch.relu(self.stem(x)))
        x = self.dilated(torch.relu(self.dilated(x)))
        x = self.norm(self.over_time(self.point(x).flatten(2)))
        y: Tensor = self.head(self.hidden(x.mT).mean(dim=1) + self.hidden(x.mean(dim=2)))
        return y


def image(batch: int = 1, size: int = 8) -> Tensor:
    return torch.zeros(batch, 3, size, size)


@functools.cache
def survey(name: str, *exclude: str) -> Sites:
    """The sites of a built-in network that has no weights."""
    with torch.device("meta"):
        model = us.create_model(name)
    return us.sites(model, us.example_input(name, model), exclude=exclude or None)


def paper(transform: str, scale: float) -> Plan:
    """WRN-28-10 as published: the 1×1 shortcuts stay dense."""
    return us.plan(survey("wrn_28_10", "*.shortcut"), transform, scale=scale)


def knobs(plan: Plan) -> dict[str, int | None]:
    return {layer.path: layer.spec.knob if layer.spec else None for layer in plan.layers}


def layer(plan: Plan, path: str) -> PlannedLayer:
    return plan[path]


# ---- exactly one budget ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budgets",
    [{}, {"params": 10_000, "ratio": 0.5}, {"scale": 0.5, "knob": 1}, {"params": "1k", "mult_adds": "1k"}],
    ids=lambda budgets: "+".join(budgets) or "none",
)
def test_exactly_one_budget_is_given(budgets: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match="give exactly one of params, mult_adds, bytes, ratio, scale, knob and latency"
    ) as caught:
        us.plan(Mixed(), "low_rank", **budgets)
    assert all(name in str(caught.value).partition("got")[2] for name in budgets or ["none"])


def test_a_count_may_be_written_as_people_write_it() -> None:
    wanted = us.plan(Mixed(), "low_rank", params=3000)
    for text in ("3k", "3000", "3_000", "3,000", "0.003M", 3000.0):
        assert us.plan(Mixed(), "low_rank", params=text) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (
            {"params": "many"},
            "'many' is not a count: write a whole number, or one such as 600k, 17.6M, 0.53G",
        ),
        ({"params": "3q"}, "'3q' is not a count"),
        ({"params": 0}, "0 is not a count of at least 1"),
        ({"params": -5}, "-5 is not a count of at least 1"),
        ({"params": 0.1}, "0.1 is not a whole number"),
        ({"params": True}, "True is not a count"),
        ({"mult_adds": "none"}, "'none' is not a count"),
        ({"ratio": 0.0}, "ratio 0.0 is not in 0..1"),
        ({"ratio": 1.5}, "ratio 1.5 is not in 0..1"),
        ({"ratio": math.nan}, "ratio nan is not a number such as 0.3 or 30%"),
        ({"ratio": "half"}, "ratio 'half' is not a number such as 0.3 or 30%"),
        ({"ratio": "130%"}, "ratio '130%' is not in 0..1"),
        ({"scale": -0.1}, "scale -0.1 is not in 0..1"),
        ({"scale": 1.1}, "scale 1.1 is not in 0..1"),
        ({"knob": 0}, "knob 0 is not a whole number of at least 1"),
        ({"knob": 9}, "strided: rank 9 is not in 1..8 for 8 → 16"),
    ],
    ids=str,
)
def test_a_budget_that_is_none_is_refused(budget: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        us.plan(Mixed(), "low_rank", example=image(), **budget)


def test_a_budget_of_mult_adds_needs_an_example() -> None:
    with pytest.raises(ValueError, match=r"needs an example input: plan\(..., example=x\)"):
        us.plan(Mixed(), "low_rank", mult_adds="1M")


def test_an_example_of_the_wrong_shape_is_named() -> None:
    with pytest.raises(ValueError, match=r"Mixed cannot run on an example of shape \[\(1, 4, 8, 8\)\]"):
        us.plan(Mixed(), "low_rank", scale=0.5, example=torch.zeros(1, 4, 8, 8))


def test_sites_stand_for_the_model_and_bring_their_own_filters() -> None:
    found = us.sites(Mixed(), image(), exclude=["hidden"])
    assert us.plan(found, "low_rank", scale=0.5) == us.plan(
        Mixed(), "low_rank", scale=0.5, example=image(), exclude=["hidden"]
    )
    with pytest.raises(ValueError, match="belong to the call of sites"):
        us.plan(found, "low_rank", scale=0.5, example=image())


def test_a_network_without_a_site_is_refused_with_the_reasons() -> None:
    with pytest.raises(ValueError, match="Sequential has no site to substitute"):
        us.plan(nn.Sequential(nn.ReLU()), "low_rank", scale=0.5)
    with pytest.raises(ValueError, match="already depthwise"):
        us.plan(nn.Sequential(nn.Conv2d(4, 4, 3, groups=4)), "low_rank", scale=0.5)


@pytest.mark.parametrize(
    ("name", "near"),
    [("low-rank", "low_rank"), ("tensortrain", "tensor_train"), ("hash", "hashed"), ("ACDC", "acdc")],
)
def test_an_unknown_transform_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=rf"no transform '{name}' among dense, .*did you mean '{near}'"):
        us.plan(Mixed(), name, scale=0.5)


def test_an_unknown_way_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="spatial 'square' is not one of auto, separable, inside, unfolded"):
        us.plan(Mixed(), "low_rank", scale=0.5, spatial="square")  # type: ignore[arg-type]


# ---- budgets of whole networks ---------------------------------------------------------------------------


@pytest.mark.parametrize("transform", CONTINUOUS)
@pytest.mark.parametrize(
    ("network", "budget"),
    [("wrn_28_10", 1_200_000), ("darts", 490_000), ("wrn_50_2", 17_600_000)],
)
def test_a_published_budget_is_met_from_below(network: str, budget: int, transform: str) -> None:
    plan = us.plan(survey(network), transform, params=budget)
    assert 0.995 * budget <= plan.params <= budget


@pytest.mark.parametrize(
    ("network", "budget"),
    [("wrn_28_10", 600_000), ("darts", 1_420_000), ("wrn_50_2", 4_350_000)],
)
def test_the_coarse_knob_of_shuffle_meets_a_published_budget_from_below(network: str, budget: int) -> None:
    assert 0.9 * budget <= us.plan(survey(network), "shuffle", params=budget).params <= budget


# ---- a budget is a ceiling -------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [name for name in NAMES if name != "dense"])
@pytest.mark.parametrize("ratio", [0.05, 0.5, 0.97])
def test_everything_from_the_cheapest_student_to_the_dense_network_is_met(
    ratio: float, transform: str
) -> None:
    plan = us.plan(survey("wrn_16_2"), transform, ratio=ratio)
    assert 0.98 * ratio <= plan.params / plan.dense_params <= ratio


@pytest.mark.parametrize("metric", ["params", "mult_adds"])
@pytest.mark.parametrize(
    ("transform", "spatial"),
    [
        *((name, spatial) for name in NAMES for spatial in ("auto", "separable", "unfolded")),
        *(("low_rank", "inside"), ("shuffle", "inside")),
    ],
)
def test_only_a_budget_below_the_cheapest_student_is_an_error(
    transform: str, spatial: Spatial, metric: str
) -> None:
    found = us.sites(Mixed(), image())
    with pytest.raises(us.BudgetError) as caught:
        us.plan(found, transform, spatial=spatial, **{metric: 1})  # type: ignore[arg-type]
    lowest = caught.value.lowest
    assert f"is below what is reachable: {lowest:,}" in str(caught.value)
    assert "lie in layers that are not substituted (" in str(caught.value)
    met = us.plan(found, transform, spatial=spatial, **{metric: lowest})  # type: ignore[arg-type]
    assert getattr(met, metric) == lowest
    with pytest.raises(us.BudgetError):
        us.plan(found, transform, spatial=spatial, **{metric: lowest - 1})  # type: ignore[arg-type]
    dense = getattr(found, metric)
    above = us.plan(found, transform, spatial=spatial, **{metric: 2 * dense})
    assert getattr(above, metric) == dense
    assert "the dense network itself is within the budget" in above.remarks


def test_convolutions_are_separable_where_that_can_use_the_budget_and_unfolded_where_not() -> None:
    found = survey("wrn_16_2")
    ways = {
        ratio: {layer.way for layer in us.plan(found, "low_rank", ratio=ratio)} for ratio in (0.1, 0.3, 0.9)
    }
    assert ways == {
        0.1: {"separable", "pointwise"},
        0.3: {"unfolded", "pointwise"},
        0.9: {"unfolded", "pointwise"},
    }
    assert (
        us.plan(found, "low_rank", ratio=0.1).layers
        == us.plan(found, "low_rank", ratio=0.1, spatial="separable").layers
    )
    [remark] = us.plan(found, "low_rank", ratio=0.3).remarks
    assert re.fullmatch(r"convolutions keep .* separable ones would have at most [\d,]+ parameters", remark)
    assert remark in str(us.plan(found, "low_rank", ratio=0.3))


def test_layers_stay_dense_where_the_way_that_was_asked_for_cannot_use_the_budget() -> None:
    plan = us.plan(survey("wrn_16_2"), "low_rank", ratio=0.5, spatial="separable")
    notes = {layer.note for layer in plan if layer.spec is None}
    assert notes == {"stays dense: the budget allows it"}
    assert "some layers stay dense: structure alone does not use the whole budget" in plan.remarks
    assert {layer.way for layer in plan if layer.spec} <= {"separable", "pointwise"}


@pytest.mark.parametrize("ratio", [0.2, 0.9])
@pytest.mark.parametrize("transform", [name for name in NAMES if name != "dense"])
def test_no_stand_in_costs_more_than_the_dense_form_of_its_way_or_saves_less_than_a_twentieth(
    transform: str, ratio: float
) -> None:
    """ResNet-18's shapes: at a fifth, 16 of its 19 layers once had factors larger than the dense matrix."""
    for layer in us.plan(basic_resnet(), transform, ratio=ratio):
        if layer.spec is not None:
            matrix = layer.matrix_in_features * layer.out_features
            taps = layer.in_features * math.prod(layer.kernel) if layer.way == "separable" else 0
            assert layer.params - taps <= 0.95 * matrix
            assert layer.params <= 0.95 * layer.dense_params


@functools.cache
def basic_resnet() -> Sites:
    """The convolutions of ResNet-18."""
    widths = [(64, 64)] * 4 + [(64, 128)] + [(128, 128)] * 3 + [(128, 256)] + [(256, 256)] * 3
    widths += [(256, 512)] + [(512, 512)] * 3
    with torch.device("meta"):
        convolutions = [nn.Conv2d(*sizes, 3, padding=1, bias=False) for sizes in widths]
        shortcuts = [nn.Conv2d(*sizes, 1, bias=False) for sizes in ((64, 128), (128, 256), (256, 512))]
        return us.sites(nn.Sequential(nn.Conv2d(3, 64, 7), *convolutions, *shortcuts, nn.Linear(512, 1000)))


def test_linear_layers_share_one_share_of_their_cost() -> None:
    """Of a feed-forward block of a transformer at 80 %, no layer is cut to pay for another."""
    with torch.device("meta"):
        model = nn.Sequential(
            nn.Linear(384, 1536), nn.Linear(1536, 384), nn.Linear(384, 384), nn.Linear(384, 8)
        )
    shares = [layer.params / layer.dense_params for layer in us.plan(model, "low_rank", ratio=0.8)]
    assert max(shares) - min(shares) < 0.02


# ---- a transform for each layer --------------------------------------------------------------------------


def test_patterns_give_each_layer_its_transform_and_the_first_that_names_it_counts() -> None:
    choice = {"strided": "shuffle", "Conv2d": "low_rank", "Linear": us.get_transform("hashed")}
    plan = us.plan(Mixed(), choice, ratio=0.6, example=image())  # type: ignore[arg-type]
    chosen = {layer.path: layer.spec.transform if layer.spec else None for layer in plan}
    assert chosen == {
        "strided": "shuffle",
        "dilated": "low_rank",
        "point": "low_rank",
        "over_time": None,
        "hidden": "hashed",
    }
    assert plan.transforms == ("shuffle", "low_rank", "hashed")
    assert plan["over_time"].note == "no pattern names it"
    assert "strided=shuffle, Conv2d=low_rank, Linear=hashed for Mixed" in str(plan)
    with torch.device("meta"):
        assert_costs_are_those_of(plan, Mixed(), image())
    assert us.Plan.from_json(plan.to_json()) == plan


def test_an_option_goes_to_the_transforms_that_have_it() -> None:
    choice = {"Linear": "hashed", "*": "low_rank"}
    plan = us.plan(Mixed(), choice, ratio=0.4, options={"indexing": "independent"})
    options = {layer.path: dict(layer.spec.options) for layer in plan if layer.spec}
    assert options["hidden"] == {"indexing": "independent"}
    assert options["point"] == {}


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (
            {"Linaer": "hashed"},
            "the pattern 'Linaer' of hashed names no site that is",
        ),
        ({"head": "hashed"}, "the pattern 'head' of hashed names no site"),
        ({"Linear": "hash"}, "no transform 'hash' among"),
        ({}, "transform is empty"),
        ({3: "hashed"}, "3 is not a pattern"),
        (7, "transform is 7, not a name: a budget is given as one"),
        (nn.Linear, "no transform <class"),
    ],
)
def test_a_choice_of_transforms_that_means_nothing_is_refused(choice: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        us.plan(Mixed(), choice, ratio=0.4)


def test_a_request_says_everything_and_is_given_alone() -> None:
    request = us.Request.of(
        {"Linear": "hashed", "*": "low_rank"},
        us.Budget("ratio", 0.4),
        exclude=["point"],
        options={"indexing": "independent"},
        seed=3,
    )
    plan = us.plan(Mixed(), request=request)
    assert plan.request == request
    assert us.Request.from_dict(json.loads(json.dumps(request.to_dict()))) == request
    with pytest.raises(ValueError, match="a request says everything"):
        us.plan(Mixed(), request=request, ratio=0.5)
    with pytest.raises(ValueError, match="a plan needs a transform and a budget"):
        us.plan(Mixed(), request=us.Request())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "a request is \\[\\], not a table"),
        ({"colour": 1}, "a request has no colour"),
        ({"budget": 3}, "budget is 3, not a table"),
        ({"budget": {"metric": "time", "amount": 3}}, r"budget\.metric is 'time', not one of params"),
        ({"include": "fc"}, "include is 'fc', not a list"),
        ({"seed": "x"}, "seed is 'x', not a whole number"),
        ({"seed": 2**70}, "seed 1180591620717411303424 has more than 62 bits"),
        ({"options": {"indexing": [1]}}, r"options\.indexing is \[1\], not text"),
    ],
)
def test_a_table_that_is_no_request_is_refused(data: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        us.Request.from_dict(data)


@pytest.mark.parametrize(
    ("budget", "text", "label"),
    [
        (us.Budget("params", 1_200_000), "at most 1,200,000 parameters", "1.2M"),
        (us.Budget("params", 138_282), "at most 138,282 parameters", "138282"),
        (us.Budget("mult_adds", 530_000_000), "at most 530,000,000 mult-adds", "530M mult-adds"),
        (us.Budget("ratio", 0.3), "at most 30 % of the parameters", "30%"),
        (us.Budget("scale", 0), "scale 0", "scale 0"),
        (us.Budget("knob", 8), "knob 8", "knob 8"),
    ],
)
def test_a_budget_says_itself_in_words_and_in_few(budget: us.Budget, text: str, label: str) -> None:
    assert (str(budget), budget.label) == (text, label)


@pytest.mark.parametrize("transform", ["low_rank", "tensor_train", "tucker"])
def test_a_budget_of_mult_adds_is_met_from_below(transform: str) -> None:
    plan = us.plan(survey("wrn_28_10"), transform, mult_adds="0.3G")
    assert plan.mult_adds is not None
    assert 0.995 * 300_000_000 <= plan.mult_adds <= 300_000_000


def test_a_ratio_is_a_share_of_the_whole_network() -> None:
    plan = us.plan(survey("wrn_28_10"), "hashed", ratio=0.05)
    assert plan.params == int(0.05 * 36_479_194)
    assert plan.dense_params == 36_479_194
    for ratio in ("5%", "0.05", " 5 % "):
        assert us.plan(survey("wrn_28_10"), "hashed", ratio=ratio) == plan


def test_a_scale_is_shared_by_all_layers() -> None:
    plan = us.plan(Mixed(), "low_rank", scale=0.25)
    assert knobs(plan) == {"strided": 4, "dilated": 4, "point": 6, "over_time": 6, "hidden": 8}
    assert set(knobs(us.plan(Mixed(), "low_rank", scale=0)).values()) == {1}


def test_a_knob_is_given_to_every_layer() -> None:
    assert set(knobs(us.plan(Mixed(), "tucker", knob=3)).values()) == {3}


# ---- published counts ------------------------------------------------------------------------------------


def test_separable_wrn_28_10_has_the_published_parameters() -> None:
    assert paper("dense", 1).params == 4_380_138


@pytest.mark.parametrize(("scale", "params"), [(0.03, 601_162), (0.10, 1_190_634)])
def test_low_rank_wrn_28_10_has_the_published_parameters(scale: float, params: int) -> None:
    assert paper("low_rank", scale).params == params


def test_low_rank_wrn_28_10_at_the_top_differs_only_where_the_published_rank_exceeds_the_full_one() -> None:
    plan = paper("low_rank", 0.24)
    assert layer(plan, "stage1.0.conv1").spec is not None
    assert knobs(plan)["stage1.0.conv1"] == 16  # 16 → 160, theirs has ⌊0.24 · 160⌋ = 38
    assert plan.params == 2_341_034
    assert plan.params + (38 - 16) * (16 + 160) == 2_344_906


class RectifiedValues(TorchDispatchMode):
    """Counts the outputs of ReLU, which the published mult-adds include and ours do not."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten.relu:
            self.count += result.numel()
        return result


@functools.cache
def rectified_values(name: str = "wrn_28_10") -> int:
    with torch.device("meta"):
        model = us.create_model(name).eval()
        with RectifiedValues() as counter:
            model(torch.empty(1, 3, 224, 224) if name == "wrn_50_2" else torch.empty(1, 3, 32, 32))
    return int(counter.count)


@pytest.mark.parametrize(
    ("transform", "scale", "published"),
    [("low_rank", 0.03, "83.7"), ("low_rank", 0.10, "171"), ("dense", 1, "630"), ("hashed", 0.2, "630")],
)
def test_wrn_28_10_has_the_published_mult_adds_once_rectified_values_count(
    transform: str, scale: float, published: str
) -> None:
    mult_adds = paper(transform, scale).mult_adds
    assert mult_adds is not None
    decimals = len(published.partition(".")[2])
    assert f"{(mult_adds + rectified_values()) / 1e6:.{decimals}f}" == published


@pytest.mark.parametrize(
    ("network", "groups", "params", "published"),
    [
        ("wrn_50_2", 4, 6_041_960, 0.91e9),
        ("wrn_50_2", 1, 17_717_096, 3.22e9),
        ("wrn_28_10", 1, 2_384_154, 359e6),
        ("wrn_28_10", 2, 1_343_834, 198e6),  # 3 groups as published: lowered until they divide all widths
        ("wrn_28_10", 5, 719_994, 101e6),  # 7 as published
    ],
)
def test_shuffle_taken_inside_has_the_published_parameters_and_mult_adds(
    network: str, groups: int, params: int, published: float
) -> None:
    exclude = ["*.shortcut"] if network == "wrn_28_10" else []
    plan = us.plan(survey(network, *exclude), "shuffle", knob=groups, spatial="inside")
    assert plan.params == params
    assert plan.mult_adds is not None
    assert plan.mult_adds + rectified_values(network) == pytest.approx(published, rel=0.01)


def test_hashed_wrn_28_10_has_the_published_parameters() -> None:
    assert f"{paper('hashed', 0.2).params / 1e6:.1f}" == "1.2"


@pytest.mark.parametrize(
    ("transform", "budget", "published"),
    [
        ("low_rank", "17.6M", 2.83e9),
        ("low_rank", "4.35M", 0.53e9),
        ("hashed", "17.6M", 4.86e9),
        ("hashed", "4.35M", 4.86e9),
    ],
)
def test_wrn_50_2_has_the_published_mult_adds(transform: str, budget: str, published: float) -> None:
    plan = us.plan(survey("wrn_50_2"), transform, params=budget)
    assert plan.mult_adds == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize("budget", ["17.6M", "4.35M"])
def test_tensor_train_has_the_published_dense_count_and_an_exact_one_below_it(budget: str) -> None:
    plan = us.plan(survey("wrn_50_2"), "tensor_train", params=budget)
    assert plan.matrix_mult_adds == pytest.approx(4.86e9, rel=0.03)
    counts = (plan.ideal_mult_adds or 0, plan.mult_adds or 0, plan.matrix_mult_adds or 0)
    assert 0 < counts[0] <= counts[1] < counts[2]


# ---- the plan's costs are those of the substituted network -----------------------------------------------


def assert_costs_are_those_of(plan: Plan, model: nn.Module, example: Any) -> None:
    with torch.device("meta"):
        student = us.substitute(model, plan)
    counted = us.cost(student, example)
    assert (plan.params, plan.mult_adds) == (counted.params, counted.mult_adds)


def assert_costs_of_layers_are_those_of(plan: Plan, model: nn.Module, example: Any) -> None:
    with torch.device("meta"):
        student = us.substitute(model, plan)
    by_path = {layer.path: layer for layer in us.cost(student, example).layers}
    for planned in plan.layers:
        bias = model.get_submodule(planned.path)._parameters.get("bias")
        assert by_path[planned.path].params == planned.params + (0 if bias is None else bias.numel())
        assert by_path[planned.path].mult_adds == planned.mult_adds
        assert by_path[planned.path].ideal_mult_adds == planned.ideal_mult_adds


@pytest.mark.parametrize("batch", [1, 64])
@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_the_costs_of_a_plan_are_those_of_the_substituted_network(
    transform: str, spatial: Spatial, batch: int
) -> None:
    with torch.device("meta"):
        model = Mixed()
    plan = us.plan(model, transform, scale=0.4, spatial=spatial, example=image(batch), include=["*"])
    assert all(layer.way == spatial for layer in plan.layers if math.prod(layer.kernel) > 1)
    assert_costs_are_those_of(plan, model, image(batch))
    assert_costs_of_layers_are_those_of(plan, model, image(batch))


@pytest.mark.parametrize(
    "budget", [{"params": 2500}, {"mult_adds": 35_000}, {"knob": 2}], ids=lambda b: next(iter(b))
)
@pytest.mark.parametrize("transform", CONTINUOUS[:3])
def test_the_costs_are_exact_for_every_kind_of_budget(transform: str, budget: dict[str, Any]) -> None:
    with torch.device("meta"):
        model = Mixed()
    assert_costs_are_those_of(us.plan(model, transform, example=image(), **budget), model, image())


@pytest.mark.parametrize("transform", NAMES)
def test_the_costs_are_exact_where_attention_reads_the_weight_of_its_projection(transform: str) -> None:
    with torch.device("meta"):
        model = reading_encoder(16)
    plan = us.plan(model, transform, scale=0.3, example=torch.zeros(2, 5, 16), include=["*"])
    assert "another module reads its weight" in layer(plan, "self_attn.out_proj").note
    assert_costs_are_those_of(plan, model, torch.zeros(2, 5, 16))


@pytest.mark.parametrize("transform", NAMES)
def test_the_ideal_costs_are_exact_where_attention_reads_the_weight_of_its_projection(transform: str) -> None:
    with torch.device("meta"):
        model = reading_encoder(16)
    example = torch.zeros(2, 5, 16)
    plan = us.plan(model, transform, scale=0.3, example=example, include=["*"])
    assert plan.ideal_mult_adds == us.cost(us.substitute(model, plan), example).ideal_mult_adds


def test_the_costs_are_exact_where_a_network_only_looks_at_the_type_of_a_weight() -> None:
    class Looking(nn.Module):
        """As T5 of transformers does before its last projection."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(16, 16)
            self.second = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.second(self.first(x.to(self.first.weight.dtype)))
            return y

    with torch.device("meta"):
        model = Looking()
    plan = us.plan(model, "low_rank", knob=2, example=torch.zeros(3, 16))
    assert_costs_are_those_of(plan, model, torch.zeros(3, 16))


def test_without_an_example_parameters_are_known_and_mult_adds_are_not() -> None:
    plan, counted = (
        us.plan(Mixed(), "low_rank", scale=0.4),
        us.plan(Mixed(), "low_rank", scale=0.4, example=image()),
    )
    assert plan.params == counted.params
    assert (plan.mult_adds, plan.dense_mult_adds, plan.ideal_mult_adds, plan.matrix_mult_adds) == (None,) * 4
    assert [layer.mult_adds for layer in plan.layers] == [None] * 5


# ---- notes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget", [{"scale": 1.0}, {"knob": 1}, {"params": 300}], ids=lambda b: next(iter(b))
)
def test_a_site_where_structure_would_cost_more_is_left_dense_and_the_plan_says_so(
    budget: dict[str, Any],
) -> None:
    model = nn.Sequential(nn.Linear(16, 1), nn.Linear(1, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    plan = us.plan(model, "low_rank", **budget)
    assert knobs(plan)["0"] is None
    assert layer(plan, "0").note == "stays dense: structure would cost more"
    assert layer(plan, "0").params == 16
    assert knobs(plan)["2"] is not None
    assert "stays dense" in str(plan)
    assert type(us.substitute(model, plan).get_submodule("0")) is nn.Linear


def test_a_shape_that_is_refused_is_left_dense_and_the_plan_says_so() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(65_536, 65_536), nn.Linear(65_536, 8), nn.Linear(8, 8))
    plan = us.plan(model, "hashed", scale=0.1)
    assert layer(plan, "0").note == "stays dense: shape refused"


def test_groups_that_do_not_divide_fall_back_to_the_nearest_and_the_plan_says_which() -> None:
    plan = us.plan(Mixed(), "shuffle", knob=3)
    assert knobs(plan) == {"strided": 4, "dilated": 4, "point": 2, "over_time": 1, "hidden": 4}
    assert layer(plan, "dilated").note == "groups 4, the nearest legal to 3"
    assert layer(plan, "point").note == "groups 2, the nearest legal to 3"
    assert layer(us.plan(Mixed(), "shuffle", knob=2), "point").note == ""


def test_a_site_that_falls_back_and_is_left_dense_says_that_it_is_dense() -> None:
    model = nn.Sequential(nn.Linear(16, 1), nn.Linear(16, 16), nn.Linear(16, 4))
    plan = us.plan(model, "shuffle", knob=2)
    assert knobs(plan)["0"] is None
    assert "stays dense" in layer(plan, "0").note


# ---- seeds and options -----------------------------------------------------------------------------------


def seeds(plan: Plan) -> list[int]:
    return [layer.spec.seed for layer in plan.layers if layer.spec is not None]


def test_every_layer_has_a_seed_of_its_own_that_follows_from_the_one_given() -> None:
    first = seeds(us.plan(Mixed(), "hashed", scale=0.5))
    assert len(set(first)) == 5
    assert seeds(us.plan(Mixed(), "hashed", scale=0.9)) == first
    other = seeds(us.plan(Mixed(), "hashed", scale=0.5, seed=1))
    assert len({*first, *other}) == 10
    assert first[0] == 1_236_356_305  # on this machine and on every other


def test_an_option_reaches_every_layer() -> None:
    plan = us.plan(Mixed(), "hashed", scale=0.5, options={"indexing": "independent"})
    assert all(layer.spec and layer.spec.options == {"indexing": "independent"} for layer in plan.layers)
    student = us.substitute(Mixed(), plan)
    assert {m.indexing for m in student.modules() if isinstance(m, us.get_transform("hashed"))} == {
        "independent"
    }


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"hashed has no option 'index' \(it has indexing\)"):
        us.plan(Mixed(), "hashed", scale=0.5, options={"index": "independent"})
    with pytest.raises(
        ValueError, match="option indexing of hashed is 'even', not one of balanced, independent"
    ):
        us.plan(Mixed(), "hashed", scale=0.5, options={"indexing": "even"})
    with pytest.raises(ValueError, match=r"low_rank has no option 'indexing' \(it has none\)"):
        us.plan(Mixed(), "low_rank", scale=0.5, options={"indexing": "balanced"})


# ---- JSON ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("transform", NAMES)
def test_a_plan_goes_to_json_and_back(transform: str, spatial: Spatial) -> None:
    for example in (None, image()):
        plan = us.plan(Mixed(), transform, scale=0.4, spatial=spatial, example=example)
        assert us.Plan.from_json(plan.to_json()) == plan


def test_a_plan_with_options_and_dense_layers_goes_to_a_file_and_back(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 1), nn.Linear(8, 8), nn.Linear(8, 2))
    for plan in (
        us.plan(model, "hashed", scale=0.5, options={"indexing": "independent"}),
        us.plan(model, "low_rank", scale=0.5),
    ):
        plan.save(tmp_path / "plan.json")
        assert us.Plan.load(tmp_path / "plan.json") == plan
        assert us.Plan.load(str(tmp_path / "plan.json")) == plan


def edited(**changes: Any) -> str:
    """The JSON of a plan with some fields changed; None takes a field away."""
    data = json.loads(us.plan(Mixed(), "low_rank", scale=0.5).to_json()) | changes
    return json.dumps({name: value for name, value in data.items() if changes.get(name, 0) is not None})


SPEC = {"transform": "low_rank", "knob": 2, "seed": 0, "options": {}}


def edited_layer(**changes: Any) -> str:
    data = json.loads(us.plan(Mixed(), "low_rank", scale=0.5).to_json())
    first = data["layers"][0] | changes
    data["layers"][0] = {name: value for name, value in first.items() if value != "gone"}
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a plan"),
        ("{", "not a plan"),
        ("[]", r"not a plan: it holds \[\], not a table"),
        ("{}", "the field 'format' is not 'understudy-plan'"),
        ("7", "not a plan: it holds 7, not a table"),
        ("[" * 100_000, "not a plan: it is nested more than 32 deep"),
        ('{"format": ' + "[" * 40 + "]" * 40 + "}", "not a plan: it is nested more than 32 deep"),
        ('{"params": NaN}', "not a plan: it holds NaN, not a finite number"),
        ('{"params": 1e999}', "not a plan: it holds 1e999, not a finite number"),
        ('{"params": 1' + "0" * 5000 + "}", "not a plan: it holds a whole number of 5,001 digits"),
        ('{"model": "\\ud800"}', "not a plan: .*half of a character"),
        (edited(format="other"), "the field 'format' is not 'understudy-plan'"),
        (edited(version=1), "the plan has version 1; this understudy reads version 2"),
        (edited(version=None), "the plan has version None"),
        (edited(layers=None), "not a plan: .*layers"),
        (edited(request=None), "not a plan: .*request"),
        (edited(request={"spatial": "round"}), "not a plan: request: spatial 'round' is not one of"),
        (edited(params=None), "not a plan: .*params"),
        (edited(colour="red"), "not a plan: .*colour"),
        (edited(layers=7), "not a plan"),
        (edited(layers=[7]), "not a plan"),
        (edited_layer(path="gone"), "not a plan: .*path"),
        (edited_layer(kernel="gone"), "not a plan: .*kernel"),
        (edited_layer(spec="gone"), "not a plan: .*spec"),
        (edited_layer(colour="red"), "not a plan: .*colour"),
        (edited_layer(spec={"transform": "low_rank"}), "not a plan: .*knob"),
        (edited_layer(spec={"transform": "low_rank", "knob": 2, "colour": "red"}), "not a plan: .*colour"),
        (edited_layer(spec=7), "not a plan"),
        (edited_layer(spec=SPEC | {"options": {"colour": "red"}}), "option colour of low_rank"),
        (edited_layer(spec=SPEC | {"options": {"indexing": 7}}), r"spec\.options\.indexing is 7, not text"),
        (edited_layer(spec=SPEC | {"seed": 2**64}), "seed 18446744073709551616 is not a whole number of"),
        (edited_layer(spec=SPEC | {"knob": 10**9}), "rank 1000000000 is not in"),
        (edited_layer(spec=SPEC | {"transform": "nothing"}), "no transform 'nothing'"),
        (edited_layer(kernel=[10**9, 3]), "not a plan: .*sizes"),
        (edited_layer(params=1), "parameters, not 1 of"),
        (edited_layer(mult_adds=-1), "mult_adds is -1, below 0"),
        (json.dumps(json.loads(edited_layer()) | {"params": 1}), "params is 1, but its layers give"),
        (edited_layer(path="point"), "2 layers have the path 'point'"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_text_that_is_no_plan_is_refused_with_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        us.Plan.from_json(text)


def test_a_file_that_is_no_plan_is_named(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"other\.json"):
        us.Plan.load(file)


# ---- nothing is made, nothing is changed -----------------------------------------------------------------


class NewStorage(TorchDispatchMode):
    """Notes every operation that gives a real tensor in memory that is not the network's or the example's."""

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        tensors = [*model.parameters(), *model.buffers(), example]
        self.known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        self.made: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            real = isinstance(leaf, Tensor) and leaf.device.type != "meta"
            if real and leaf.untyped_storage().data_ptr() not in self.known:
                self.made.append(str(func))
        return result


@pytest.mark.parametrize("transform", NAMES)
def test_planning_makes_no_weight_and_changes_nothing(transform: str) -> None:
    model, example = Mixed(), image()
    model.norm.eval()
    model.hidden.register_forward_hook(lambda *_: None)
    before = snapshot(model)
    with NewStorage(model, example) as watch:
        us.plan(model, transform, scale=0.4, example=example)
        us.plan(model, transform, scale=0.4, example=example, spatial="unfolded")
    assert watch.made == []
    assert snapshot(model) == before


def test_a_plan_is_frozen() -> None:
    plan = us.plan(Mixed(), "low_rank", scale=0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.params = 3  # type: ignore[misc]


def test_a_plan_prints_as_a_table_with_its_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = us.plan(Mixed(), "low_rank", scale=0.5, example=image())
    text = str(plan)
    assert "low_rank for Mixed, scale 0.5" in text
    row = next(line for line in text.splitlines() if "strided" in line)
    assert all(part in row for part in ("3×3 8 → 16", "separable", "rank 8"))
    assert plan.summary() in text.splitlines()
    monkeypatch.setenv("COLUMNS", "60")
    narrow = str(us.plan(Mixed(), "shuffle", knob=3, example=image())).splitlines()
    assert max(map(len, narrow)) <= 60
    assert "  dilated: groups 4, the nearest legal to 3" in narrow


def test_a_plan_shows_itself_in_a_line_and_in_a_notebook_and_gives_its_layers() -> None:
    plan = us.plan(Mixed(), "low_rank", scale=0.5)
    counts = f"{plan.params:,} of {plan.dense_params:,} parameters, 5 layers"
    assert repr(plan) == f"<Plan: low_rank for Mixed, scale 0.5; {counts}>"
    assert "<td>strided</td>" in plan._repr_html_()
    assert [layer.path for layer in plan] == ["strided", "dilated", "point", "over_time", "hidden"]
    assert len(plan) == 5
    assert plan["point"] is plan.layers[2]
    assert "point" in plan
    assert "pont" not in plan
    with pytest.raises(KeyError, match=r"no layer 'pont'.*did you mean 'point'"):
        plan["pont"]


def test_an_example_may_be_given_by_its_shape() -> None:
    by_shape = us.plan(Mixed(), "low_rank", ratio=0.4, example=(1, 3, 8, 8))
    assert by_shape == us.plan(Mixed(), "low_rank", ratio=0.4, example=image())
    with pytest.raises(TypeError, match="example is a str, not a tensor, a shape"):
        us.plan(Mixed(), "low_rank", ratio=0.4, example="1,3,8,8")  # type: ignore[arg-type]


def test_every_transform_is_compared_under_one_budget() -> None:
    found = us.compare(Mixed(), ratio=0.3, example=image(), options={"indexing": "independent"})
    assert set(found.plans) | set(found.refused) == set(us.list_transforms())
    for name, plan in found.plans.items():
        assert plan.layers == us.plan(
            Mixed(), name, ratio=0.3, example=image(),
            options={"indexing": "independent"} if name == "hashed" else None,
        ).layers  # fmt: skip
    assert "below what is reachable" in found.refused["dense"]
    assert "lie in layers" not in str(found)
    with pytest.raises(ValueError, match="no transform has an option index"):
        us.compare(Mixed(), ratio=0.3, options={"index": "balanced"})
    with pytest.raises(ValueError, match="a budget of mult-adds needs an example"):
        us.compare(Mixed(), mult_adds="1M")


@pytest.mark.parametrize("name", us.list_transforms())
def test_a_layer_of_one_output_is_planned_or_stays_dense(name: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 1, 3))
    plan = us.plan(model, name, ratio=0.9, spatial="separable", include=["1", "2"])
    assert plan.params <= 0.9 * sum(parameter.numel() for parameter in model.parameters())


def test_a_mild_budget_is_shared_evenly_by_layers_of_all_sizes() -> None:
    """As of a sentence encoder: none keeps nearly all of its cost while others are cut to a fifth."""
    block = [nn.Linear(96, 96), nn.Linear(96, 96), nn.Linear(96, 384), nn.Linear(384, 96)]
    model = nn.Sequential(*block, *copy.deepcopy(block), nn.Linear(96, 10))
    plan = us.plan(model, "low_rank", ratio=0.9)
    shares = [layer.params / layer.dense_params for layer in plan if layer.spec is not None]
    assert len(shares) == 8
    assert max(shares) <= 0.95
    assert max(shares) - min(shares) < 0.05


def test_a_budget_of_bytes_holds_for_a_file_of_many_groups(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Conv2d(64, 64, 3, padding=1, groups=16, bias=False) for _ in range(4)))
    budget = 45_000
    plan = us.plan(model, "low_rank", bytes=budget, include=["*"], spatial="unfolded")
    us.save(us.substitute(model, plan), tmp_path / "file")
    assert (tmp_path / "file").stat().st_size <= budget


def few_of_many() -> nn.Module:
    norms = [nn.BatchNorm1d(8) for _ in range(60)]
    return nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64), *norms)


def one_of_a_block_in_many_places() -> nn.Module:
    block = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.LayerNorm(64))
    return nn.Sequential(nn.Linear(64, 64), *[block] * 24, nn.Linear(64, 4))


@pytest.mark.parametrize("make", [few_of_many, one_of_a_block_in_many_places])
@pytest.mark.parametrize("share", [0.7, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("transform", ["low_rank", "low_rank_sparse"])
def test_a_budget_of_bytes_holds_for_all_that_a_file_says_of_its_tensors(
    transform: str, make: Callable[[], nn.Module], share: float, tmp_path: Path
) -> None:
    model = make()
    us.save(model, tmp_path / "dense")
    budget = int(share * (tmp_path / "dense").stat().st_size) - 1
    student = us.substitute(model, us.plan(model, transform, bytes=budget), init="fresh")
    us.save(student, tmp_path / "file")
    assert (tmp_path / "file").stat().st_size <= budget
    for base in (make(), make().to("meta")):
        for name, value in us.load(tmp_path / "file", base).state_dict().items():
            assert torch.equal(value, student.state_dict()[name]), name


def test_nothing_that_is_named_is_nothing_to_substitute() -> None:
    with pytest.raises(ValueError, match=r"has no site to substitute .*not included"):
        us.plan(us.create_model("resnet20"), "low_rank", ratio=0.5, include=[])


@pytest.mark.parametrize("transform", ["low_rank", "tucker", "hashed"])
def test_a_budget_of_bytes_is_used_but_for_half_a_percent(transform: str, tmp_path: Path) -> None:
    model, budget = us.create_model("wrn_16_2"), 1_400_000
    us.save(us.substitute(model, us.plan(model, transform, bytes=budget), init="fresh"), tmp_path / "file")
    assert 0.995 * budget <= (tmp_path / "file").stat().st_size <= budget
