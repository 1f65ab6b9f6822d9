"""Recipes: the paper's settings, what overrides what, and values that are refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from understudy.train import Recipe, load_recipe, recipe_names
from understudy.train.networks import make_student_plan

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
    recipe = dataclasses.asdict(load_recipe(name))
    assert {key: recipe[key] for key in settings} == settings
    common = {
        "decay": "crs", "decay_scope": "layer", "decay_vectors": True, "decay_overrides": (), "clip": 0.0,
        "nesterov": False, "ema": 0.0, "distillation": 0.0, "init": "fresh", "spatial": "separable",
        "train_images": 0, "precision": "float32", "teacher": "", "transform": "", "name": name,
    }  # fmt: skip
    assert {key: recipe[key] for key in common} == common


def test_the_shipped_recipes_are_the_paper_s_and_the_demo() -> None:
    assert recipe_names() == ["darts_cifar10", "demo", "wrn_28_10_cifar10", "wrn_50_2_imagenet"]
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
    assert (recipe.transform, recipe.params, recipe.teacher) == ("shuffle", "20k", "runs/teacher")
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
    [("learning_rat", "learning_rate"), ("epoch", "epochs"), ("batchsize", "batch_size"), ("zzz", "")],
)
def test_an_unknown_key_names_the_nearest(tmp_path: Path, key: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=f"no setting '{key}'; the nearest is '{nearest}"):
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
        ("temperature", 0), ("momentum", -1), ("gamma", -1), ("ratio", -0.5), ("seed", -1), ("auxiliary", -1),
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
        ({"transform": "hashed", "ratio": 0.5, "attention": 1000}, "need a teacher"),
        ({"transform": "hashed", "ratio": 0.5, "distillation": 0.5}, "need a teacher"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe().replaced(changes)


def test_the_identity_is_that_of_the_settings() -> None:
    assert load_recipe("demo").identity() == load_recipe("demo").identity()
    assert load_recipe("demo", {"seed": 0}).identity() == load_recipe("demo").identity()
    assert load_recipe("demo", {"weight_decay": "5e-4"}).identity() == load_recipe("demo").identity()
    seen = {Recipe().identity()}
    for key, value in {
        "seed": 1,
        "flip": False,
        "milestones": [3],
        "learning_rate": 0.2,
    }.items():
        seen.add(Recipe().replaced({key: value}).identity())
    assert len(seen) == 5


def test_the_identity_knows_inputs_by_content_and_ignores_how_a_run_runs() -> None:
    plain = Recipe().identity()
    for key, value in {"name": "x", "teacher": "elsewhere", "workers": 3, "checkpoint_seconds": 1}.items():
        assert Recipe().replaced({key: value}).identity() == plain
    assert Recipe().identity({"teacher": "sha256:1"}) != Recipe().identity({"teacher": "sha256:2"}) != plain


def test_a_recipe_made_directly_is_checked_too() -> None:
    with pytest.raises(ValueError, match="epochs is 0, below 1"):
        Recipe(epochs=0)


def test_the_identity_survives_a_round_through_json() -> None:
    recipe = load_recipe("wrn_28_10_cifar10")
    held = json.loads(json.dumps(dataclasses.asdict(recipe)))
    assert Recipe().replaced(held) == recipe
    assert Recipe().replaced(held).identity() == recipe.identity()


def test_no_such_recipe_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no recipe 'wrn_28_10' among .*did you mean wrn_28_10_cifar10"):
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
    assert planned.budget == ("scale 0.5" if "scale" in budget else "rank 2")
    with pytest.raises(ValueError, match=r"give one of params, .*, not params and "):
        recipe.replaced({"params": "10k"})
