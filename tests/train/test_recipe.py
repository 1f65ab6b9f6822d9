"""Recipes: the paper's settings, what overrides what, and values that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from understudy.planning.budget import Budget
from understudy.train import Recipe, indifferent_settings, load_recipe, recipe_names
from understudy.train import recipe as recipe_module
from understudy.train.student import make_student_plan

# PAPER.md, "Networks and recipes"; what is not listed is the default, checked below
WRN_28_10 = {
    "network": "wrn_28_10", "data": "cifar10", "epochs": 200, "batch_size": 128, "learning_rate": 0.1,
    "schedule": "step", "milestones": (60, 120, 160), "gamma": 0.2, "momentum": 0.9, "weight_decay": 5e-4,
    "crop_padding": 4, "flip": True, "cutout": 16, "resized_crop": False, "attention": 1000.0,
    "taps": ("stage1", "stage2", "stage3"), "exclude": ("*.shortcut",), "auxiliary": 0.0, "drop_path": 0.0,
    "mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010),
}  # fmt: skip
DARTS = {
    "network": "darts", "data": "cifar10", "epochs": 600, "batch_size": 96, "learning_rate": 0.025,
    "schedule": "cosine", "milestones": (), "momentum": 0.9, "weight_decay": 3e-4, "crop_padding": 4,
    "flip": True, "cutout": 16, "resized_crop": False, "attention": 1000.0, "taps": ("cells.5", "cells.12"),
    "auxiliary": 1.0, "drop_path": 0.2, "exclude": (),
    "mean": (0.49139968, 0.48215827, 0.44653124), "std": (0.24703233, 0.24348505, 0.26158768),
}  # fmt: skip
WRN_50_2 = {
    "network": "wrn_50_2", "data": "imagenet", "epochs": 90, "batch_size": 256, "learning_rate": 0.1,
    "schedule": "step", "milestones": (30, 60), "gamma": 0.1, "momentum": 0.9, "weight_decay": 1e-4,
    "flip": True, "cutout": 0, "resized_crop": True, "attention": 1000.0,
    "taps": ("layer1", "layer2", "layer3", "layer4"), "exclude": (), "auxiliary": 0.0, "drop_path": 0.0,
    "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "settings"),
    [("wrn_28_10_cifar10", WRN_28_10), ("darts_cifar10", DARTS), ("wrn_50_2_imagenet", WRN_50_2)],
)
def test_a_recipe_of_the_paper_holds_its_settings(name: str, settings: dict[str, Any]) -> None:
    recipe = {"exclude": (), **load_recipe(name).settings()}
    assert {key: recipe[key] for key in settings} == settings
    common = {
        "decay": "crs", "decay_scope": "layer", "decay_vectors": True, "decay_overrides": (), "clip": 0.0,
        "nesterov": False, "ema": 0.0, "distillation": 0.0, "init": "fresh", "spatial": "separable",
        "train_images": 0, "precision": "float32", "teacher": "", "name": name,
    }  # fmt: skip
    assert {key: recipe[key] for key in common} == common
    assert "transform" not in recipe


def test_the_shipped_recipes_are_the_paper_s_and_the_demo() -> None:
    assert recipe_names() == [
        "cifar10_fast",
        "darts_cifar10",
        "demo",
        "wide_digits",
        "wrn_28_10_cifar10",
        "wrn_50_2_imagenet",
    ]
    assert load_recipe("demo").data == "digits"


def test_a_flag_beats_the_file_and_the_file_beats_the_default(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("epochs = 7\nbatch_size = 9\nmilestones = [2, 4]\n")
    recipe = load_recipe(path, {"epochs": 3})
    assert (recipe.name, recipe.epochs, recipe.batch_size, recipe.momentum) == ("own", 3, 9, 0.9)
    assert recipe.milestones == (2, 4)
    assert load_recipe(str(path)).epochs == 7


def test_a_file_may_leave_to_a_flag_what_it_cannot_do_without(tmp_path: Path) -> None:
    path = tmp_path / "student.toml"
    path.write_text('transform = "shuffle"\nattention = 1000.0\n')
    recipe = load_recipe(path, {"params": "20k", "teacher": "runs/teacher"})
    assert (recipe.request.label, recipe.request.budget) == ("shuffle", Budget("params", 20_000))
    assert recipe.teacher == "runs/teacher"
    with pytest.raises(ValueError, match="needs a budget"):
        load_recipe(path)


def test_text_is_converted_to_the_type_of_its_setting() -> None:
    recipe = Recipe().replaced(
        {"epochs": "12", "learning_rate": "1e-2", "flip": "false", "milestones": "3,6", "taps": "a.b,c",
         "weight_decay": 0, "schedule": "cosine", "mean": "0.5,0.25,1"}
    )  # fmt: skip
    assert (recipe.epochs, recipe.learning_rate, recipe.flip) == (12, 0.01, False)
    assert (recipe.milestones, recipe.taps, recipe.schedule) == ((3, 6), ("a.b", "c"), "cosine")
    assert recipe.mean == (0.5, 0.25, 1.0)
    assert isinstance(recipe.weight_decay, float)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("learning_rat", "learning_rate"), ("epoch", "epochs"), ("batchsize", "batch_size"),
        ("transfrom", "transform"), ("multadds", "mult_adds"),
    ],
)  # fmt: skip
def test_an_unknown_key_names_the_nearest(tmp_path: Path, key: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"no setting '{key}' \(did you mean '{nearest}'"):
        Recipe().replaced({key: 1})
    path = tmp_path / "own.toml"
    path.write_text(f"{key} = 1\n")
    with pytest.raises(ValueError, match=f"no setting '{key}'"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("epochs", 1.5, "a whole number"),
        ("epochs", "many", "a whole number"),
        ("epochs", True, "a whole number"),
        ("epochs", [3], "a whole number"),
        ("learning_rate", "fast", "a number"),
        ("learning_rate", True, "a number"),
        ("learning_rate", "nan", "a number"),
        ("learning_rate", float("inf"), "a number"),
        ("learning_rate", None, "a number"),
        ("flip", "maybe", "true or false"),
        ("flip", 1, "true or false"),
        ("flip", [True], "true or false"),
        ("network", ["wrn_10_1"], "text"),
        ("network", True, "text"),
        ("teacher", None, "text"),
        ("schedule", "linear", "one of step, cosine"),
        ("decay", ["crs"], "one of crs, none"),
        ("milestones", 3, "a list of a whole number"),
        ("milestones", [1, 2.5], "a whole number"),
        ("milestones", "1,b", "a whole number"),
        ("exclude", 3, "a list of text"),
        ("transform", 3, "a name or a table such as Linear=shuffle"),
        ("transform", {"Linear": 3}, "a name or a table such as Linear=shuffle"),
        ("options", "balanced", "a table such as indexing=independent"),
        ("request", "low_rank", "a table"),
    ],
)
def test_an_ill_typed_value_is_refused(key: str, value: Any, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"{key} is .*, not {kind}"):
        Recipe().replaced({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", 0), ("batch_size", 0), ("train_images", -1), ("learning_rate", -0.1), ("weight_decay", -1),
        ("cutout", -1), ("attention", -1), ("clip", -1), ("ema", 1), ("drop_path", 1.5), ("distillation", 2),
        ("temperature", 0), ("momentum", -1), ("gamma", -1), ("ratio", -0.5), ("scale", 2), ("knob", 0),
        ("params", "much"), ("spatial", "flat"), ("seed", -1), ("auxiliary", -1),
        ("checkpoint_seconds", -1), ("decay_overrides", "hashed"), ("decay_overrides", ["hashed=off"]),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=key):
        Recipe().replaced({key: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transform": "hashed"}, "needs a budget"),
        ({"params": "1M"}, "the budget params needs a transform"),
        ({"transform": "hashed", "params": "1M", "ratio": 0.5}, "give one of .*not params and ratio"),
        ({"plan": "p.json", "ratio": 0.5}, "plan names its transforms and sizes itself: leave out ratio"),
        ({"plan": "p.json", "transform": "hashed"}, "leave out transform hashed"),
        ({"transform": "hashd", "ratio": 0.5}, "did you mean 'hashed'"),
        ({"transform": "hashed", "ratio": 0.5, "options": "index=x"}, "hashed has no option 'index'"),
        ({"transform": "hashed", "ratio": 0.5, "attention": 1000}, "need a teacher"),
        ({"transform": "hashed", "ratio": 0.5, "distillation": 0.5}, "need a teacher"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe().replaced(changes)


def test_the_identity_is_that_of_the_settings() -> None:
    plain = load_recipe("demo").identity()
    indifferent = {key: "3" for key in indifferent_settings() if key not in ("recompute", "plan")}
    for same in ({}, {"seed": 0}, {"weight_decay": "5e-4"}, {"recompute": True}, indifferent):
        assert load_recipe("demo", same).identity() == plain
    base = Recipe().replaced({"transform": "hashed", "params": "1.2M"})
    assert base.replaced({"params": 1_200_000}).identity() == base.identity()
    seen = {base.identity(), base.identity(teacher="sha256:1"), base.identity(plan="sha256:1")}
    changes: list[dict[str, Any]] = [
        {"seed": 1}, {"flip": False}, {"milestones": [3]}, {"learning_rate": 0.2}, {"params": "1.3M"},
        {"scale": 0}, {"transform": "shuffle"}, {"spatial": "unfolded"}, {"include": "Linear"},
        {"exclude": "Linear"}, {"options": "indexing=independent"}, {"transform": {"Linear": "hashed"}},
    ]  # fmt: skip
    seen |= {base.replaced(change).identity() for change in changes}
    assert len(seen) == 3 + len(changes)


def test_a_changed_default_or_format_is_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Recipe().identity()
    assert Recipe().deciding()["gamma"] == 0.1  # a default is part of the identity
    assert json.loads(json.dumps(Recipe().deciding())) == Recipe().deciding()
    assert not set(Recipe().deciding()) & set(indifferent_settings())
    monkeypatch.setattr(recipe_module, "FORMAT", 0)
    assert Recipe().identity() != before


def test_a_recipe_made_directly_is_checked_too() -> None:
    with pytest.raises(ValueError, match="epochs is 0, below 1"):
        Recipe(epochs=0)


def test_a_recipe_survives_a_round_through_json() -> None:
    settings = {"transform": {"Linear": "shuffle", "*.conv2": "hashed"}, "scale": 0, "seed": 3,
                "include": "a,b", "options": {"indexing": "independent"}, "teacher": "t"}  # fmt: skip
    recipe = load_recipe("wrn_28_10_cifar10", settings)
    held = json.loads(json.dumps(recipe.to_dict()))
    assert Recipe.from_dict(held) == Recipe().replaced(held) == recipe
    assert Recipe.from_dict(held).identity() == recipe.identity()
    assert recipe.request.seed == 3


def test_a_recipe_of_an_earlier_run_is_still_read() -> None:
    held = Recipe().to_dict()
    del held["teacher_network"]
    assert Recipe.from_dict(held) == Recipe()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": "3"}, "epochs is '3', not a whole number"),
        ({"flip": "true"}, "flip is 'true', not true or false"),
        ({"network": 3}, "network is 3, not text"),
        ({"taps": "a,b"}, "taps is 'a,b', not a list of text"),
        ({"request": None}, "a request is None, not a table"),
        ({"transform": "low_rank"}, "a recipe has no transform"),
        ({"epochs": None}, "epochs is None"),
    ],
)
def test_a_record_that_is_not_whole_or_not_of_its_types_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe.from_dict({**Recipe().to_dict(), **change})
    with pytest.raises(ValueError, match=r"a recipe lacks .*epochs"):
        Recipe.from_dict({"network": "wrn_10_1"})
    with pytest.raises(ValueError, match="not a table"):
        Recipe.from_dict([])  # type: ignore[arg-type]


def test_flat_keys_make_a_request_and_one_budget_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('ratio = 0.5\noptions = { indexing = "independent" }\n'
                    '[transform]\nLinear = "shuffle"\n"*.conv2" = "hashed"\n')  # fmt: skip
    recipe = load_recipe(path, {"params": "20k"})
    assert recipe.request.transform == (("Linear", "shuffle"), ("*.conv2", "hashed"))
    assert recipe.request.budget == Budget("params", 20_000)
    assert recipe.replaced({"scale": 0}).request.budget == Budget("scale", 0)
    written = {"transform": "Linear=shuffle,*.conv2=hashed", "options": "indexing=independent"}
    assert Recipe().replaced({**written, "params": 20_000}).request == recipe.request
    planned = Recipe(plan="p.json")
    assert planned.replaced({"transform": "shuffle", "knob": 2}).plan == ""
    dense = recipe.replaced({"transform": "", "params": "", "options": ""})
    assert (dense.structure, recipe.structure) == ("dense", "Linear=shuffle, *.conv2=hashed")


def test_no_such_recipe_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no recipe 'wrn_28_10' among .*did you mean 'wrn_28_10_cifar10"):
        load_recipe("wrn_28_10")
    with pytest.raises(ValueError, match="nor such a file"):
        load_recipe(tmp_path / "missing.toml")


def test_a_file_that_is_not_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("epochs = = 3\n")
    with pytest.raises(ValueError, match=r"bad\.toml: .*line 1"):
        load_recipe(path)


@pytest.mark.parametrize("budget", [{"scale": 0.5}, {"knob": 2}])
def test_a_scale_or_a_knob_is_a_budget_too(budget: dict[str, Any]) -> None:
    recipe = Recipe().replaced({"network": "wrn_10_1", "transform": "low_rank", **budget})
    planned = make_student_plan(recipe, 10, torch.zeros(1, 3, 8, 8))
    assert planned is not None
    assert planned.request == recipe.request


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"learning_rate": 1e300}, "learning_rate is 1e\\+300, above 1e\\+30"),
        ({"weight_decay": "1e200"}, "weight_decay is 1e\\+200, above 1e\\+30"),
        ({"seed": 2**70}, "seed is .*, above"),
        ({"epochs": 10**30}, "epochs is .*, above"),
    ],
)
def test_a_number_beyond_what_can_be_computed_with_is_refused(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Recipe().replaced(setting)
