"""A recipe: everything that decides how a network is trained. Flag > recipe file > default, resolved once."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import json
import math
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from understudy._util.shipped import read_toml, shipped_names

Schedule = Literal["step", "cosine"]
Precision = Literal["float32", "bfloat16", "float16"]
_Decay = Literal["crs", "none"]
BUDGETS = ("params", "mult_adds", "ratio", "scale", "knob", "plan")  # one of these goes with a transform


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of one training run; a rate or weight of 0 turns its part off."""

    name: str = "custom"
    # what is trained
    network: str = "wrn_16_2"
    data: str = "digits"
    train_images: int = 0  # 0: all of them
    seed: int = 0
    # substitution
    transform: str = ""  # "": train the dense network
    params: str = ""
    mult_adds: str = ""
    ratio: float = 0.0
    scale: float = 0.0
    knob: int = 0
    plan: str = ""  # a plan file instead of a budget
    spatial: Literal["separable", "unfolded"] = "separable"
    exclude: tuple[str, ...] = ()
    init: Literal["fresh", "project"] = "fresh"
    # optimisation
    epochs: int = 200
    batch_size: int = 128
    learning_rate: float = 0.1
    schedule: Schedule = "step"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    clip: float = 0.0
    ema: float = 0.0
    # weight decay
    weight_decay: float = 5e-4
    decay: _Decay = "crs"
    decay_scope: Literal["layer", "network"] = "layer"
    decay_overrides: tuple[str, ...] = ()  # such as "hashed=none"
    decay_vectors: bool = True  # biases and norms too
    # the teacher
    teacher: str = ""  # a run folder, a safetensors file, or a name such as timm:NAME
    attention: float = 0.0  # β
    taps: tuple[str, ...] = ()
    distillation: float = 0.0  # α: the share of the loss that is Hinton's
    temperature: float = 4.0
    # regularisation of the network
    auxiliary: float = 0.0  # weight of the auxiliary head's loss
    drop_path: float = 0.0  # reached linearly at the last epoch
    # augmentation
    crop_padding: int = 4
    flip: bool = True
    cutout: int = 0
    resized_crop: bool = False  # of images read from files, instead of a padded crop
    mean: tuple[float, ...] = ()  # of the data set, unless given
    std: tuple[float, ...] = ()
    # how it runs
    precision: Precision = "float32"
    channels_last: bool = True
    compile: bool = False
    recompute: bool = True  # stand-ins keep only their input for the backward pass; False is quicker
    workers: int = 0
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        _check(self)

    def identity(self, inputs: Mapping[str, str] | None = None) -> str:
        """A short hash of what decides the outcome: the same settings and inputs are the same run.

        `inputs` are the digests of the teacher and the plan, which count by content, not by path.
        """
        deciding = {  # without defaults: a setting that a later version adds leaves old runs what they are
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _INDIFFERENT and getattr(self, field.name) != field.default
        }
        text = json.dumps([deciding, dict(inputs or {})], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def budget(self) -> dict[str, Any]:
        """What the planner is asked to meet, as its arguments."""
        return {key: getattr(self, key) or None for key in BUDGETS if key != "plan"}

    def replaced(self, changes: Mapping[str, Any]) -> Recipe:
        """With some settings changed; values may be text. An unknown or ill-typed one is a ValueError."""
        types = _types()
        converted = {}
        for key, value in changes.items():
            if key not in types:
                near = difflib.get_close_matches(key, types, n=1, cutoff=0.0)
                raise ValueError(f"no setting {key!r}; the nearest is {near[0]!r}")
            converted[key] = _convert(key, value, types[key])
        return dataclasses.replace(self, **converted)


# What a run is called, where its inputs lie, and how it runs: another choice gives the same result.
_INDIFFERENT = ("name", "teacher", "plan", "recompute", "workers", "checkpoint_seconds")


@functools.cache
def _types() -> dict[str, Any]:
    """The type of each setting."""
    return typing.get_type_hints(Recipe)


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return shipped_names("recipe")


def load_recipe(name: str | Path, changes: Mapping[str, Any] | None = None) -> Recipe:
    """A shipped recipe by name, or one from a TOML file, with `changes` on top."""
    return Recipe(name=Path(name).stem).replaced({**recipe_settings(name), **(changes or {})})


def recipe_settings(name: str | Path) -> dict[str, Any]:
    """What a shipped recipe or a TOML file sets; the rest it leaves to flags and defaults."""
    return read_toml("recipe", name)


def _convert(key: str, value: Any, wanted: Any) -> Any:
    """A value from TOML or text as the type of its field."""
    problem = ValueError(f"{key} is {value!r}, not {_describe(wanted)}")
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise problem
        return value
    if get_origin(wanted) is tuple:
        items = [item for item in value.split(",") if item] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise problem
        return tuple(_convert(key, item, get_args(wanted)[0]) for item in items)
    if wanted is bool:
        known = {"true": True, "false": False, True: True, False: False}
        if not isinstance(value, bool | str) or value not in known:
            raise problem
        return known[value]
    if isinstance(value, bool) or not isinstance(value, (str, int) if wanted is int else (str, int, float)):
        raise problem
    try:
        converted = wanted(value)
    except ValueError:
        raise problem from None
    if wanted is float and not math.isfinite(converted):
        raise problem
    return converted


def _describe(wanted: Any) -> str:
    if get_origin(wanted) is Literal:
        return f"one of {', '.join(map(str, get_args(wanted)))}"
    if get_origin(wanted) is tuple:
        return f"a list of {_describe(get_args(wanted)[0])}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[wanted]


def _check(recipe: Recipe) -> None:
    """A ValueError that names the setting that is out of range."""
    for key, low in (
        ("epochs", 1), ("batch_size", 1), ("train_images", 0), ("learning_rate", 0), ("weight_decay", 0),
        ("cutout", 0), ("crop_padding", 0), ("attention", 0), ("clip", 0), ("checkpoint_seconds", 0),
        ("workers", 0), ("seed", 0), ("ratio", 0), ("scale", 0), ("knob", 0), ("gamma", 0), ("momentum", 0),
        ("auxiliary", 0),
    ):  # fmt: skip
        if getattr(recipe, key) < low:
            raise ValueError(f"{key} is {getattr(recipe, key)!r}, below {low}")
    for key in ("ema", "drop_path"):
        if not 0 <= getattr(recipe, key) < 1:
            raise ValueError(f"{key} is {getattr(recipe, key)!r}, not in 0..1")
    if recipe.temperature <= 0:
        raise ValueError(f"temperature is {recipe.temperature!r}, not above 0")
    for override in recipe.decay_overrides:
        if override.partition("=")[2] not in get_args(_Decay):
            raise ValueError(f"decay_overrides holds {override!r}; an example is 'hashed=none'")
    if not 0 <= recipe.distillation <= 1:
        raise ValueError(f"distillation is {recipe.distillation!r}, not in 0..1")
    budgets = [key for key in BUDGETS if getattr(recipe, key)]
    if len(budgets) > 1:
        raise ValueError(f"give one of {', '.join(BUDGETS)}, not {' and '.join(budgets)}")
    if recipe.transform and not budgets:
        raise ValueError(f"transform {recipe.transform!r} needs a budget, one of {', '.join(BUDGETS)}")
    if budgets and not recipe.transform and not recipe.plan:
        raise ValueError(f"the budget {budgets[0]} needs a transform")
    if (recipe.attention or recipe.distillation) and not recipe.teacher and budgets:
        raise ValueError("attention transfer and distillation need a teacher: a run folder or a weights file")
