"""A recipe: everything that decides how a network is trained. Flag > recipe file > default, resolved once."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Mapping, Set
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from understudy._util.names import check_label, check_name, file_name
from understudy._util.nearest import hint
from understudy._util.records import InputError, RecordError, short
from understudy._util.shipped import read_toml, shipped_names
from understudy.distil.decay import Policy, Scope
from understudy.distil.distillation import Distance
from understudy.distil.groups import Rates
from understudy.planning.request import Request

from .losses import Loss
from .optimisers import OptimiserName
from .precision import Precision
from .schedules import Schedule
from .settings import MOST, REQUEST_KEYS, SIZES, changed_request, convert, overlaid, written

FORMAT = 3  # of what an identity is made of, and of a run's settings on disk

_LARGEST = 1e30  # of a number: float32 can hold its product with a weight

# Of a field: what a run is called, where its inputs lie, how it runs. Another choice gives the same result.
INDIFFERENT: Mapping[str, bool] = MappingProxyType({"decides": False})


class RecipeError(InputError):
    """Settings that are no recipe."""


_LATER = {"teacher_network": ""}  # what recipes of this format did not have at first


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of one training run; a rate or weight of 0 turns its part off.

    >>> from understudy.train import Recipe
    >>> recipe = Recipe(network="wrn_16_2", epochs=30)
    >>> student = recipe.replaced({"transform": "low_rank", "ratio": "0.2", "epochs": "60"})
    >>> student.structure, student.epochs, student.identity() == recipe.identity()
    ('low_rank', 60, False)
    """

    name: str = field(default="custom", metadata=INDIFFERENT)
    # what is trained
    network: str = "wrn_16_2"
    data: str = "digits"
    train_images: int = 0  # 0: all of them
    seed: int = 0
    # substitution
    request: Request = field(default_factory=Request)  # its seed is the recipe's
    plan: str = field(default="", metadata=INDIFFERENT)  # a plan file instead; it counts by its content
    init: Literal["fresh", "spectral", "project"] = "fresh"  # spectral: a dense draw, projected
    # optimisation
    epochs: int = 200
    batch_size: int = 128
    loss: Loss = "cross_entropy"
    label_smoothing: float = 0.0
    optimiser: OptimiserName = "sgd"
    learning_rate: float = 0.1
    rates: Rates = "same"  # for adamw, each factor's by its fan-in or its size
    schedule: Schedule = "step"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    rise: float = 0.3  # of one_cycle: the share of steps with a rising rate
    momentum: float = 0.9  # of sgd
    nesterov: bool = False
    betas: tuple[float, ...] = (0.9, 0.999)  # of adamw
    guide: float = 0.0  # the share of all steps over which dense companions of the stand-ins fade out
    clip: float = 0.0
    ema: float = 0.0
    # weight decay
    weight_decay: float = 5e-4
    decay: Policy = "crs"
    decay_scope: Scope = "layer"
    decay_overrides: tuple[str, ...] = ()  # such as "hashed=none"
    decay_vectors: bool = True  # biases and norms too
    # the teacher: a run folder, a safetensors file, or a name such as timm:NAME; it counts by what it is
    teacher: str = field(default="", metadata=INDIFFERENT)
    teacher_network: str = field(default="", metadata=INDIFFERENT)  # of a file of weights; "" is the same one
    attention: float = 0.0  # β
    taps: tuple[str, ...] = ()
    distillation: float = 0.0  # α: the share of the loss that is the teacher's; 1: targets are not looked at
    distance: Distance = "softened"  # of distillation: Hinton's, or of the outputs as they are
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
    # stand-ins keep only their input for the backward pass, where a step needs the memory; False: never
    recompute: bool = field(default=True, metadata=INDIFFERENT)
    workers: int = field(default=0, metadata=INDIFFERENT)
    checkpoint_seconds: float = field(default=300.0, metadata=INDIFFERENT)

    def __post_init__(self) -> None:
        object.__setattr__(self, "request", dataclasses.replace(self.request, seed=self.seed))
        _check(self)

    # ---- what it is ------------------------------------------------------------------------------------

    @property
    def structure(self) -> str:
        """In a word, what the network is made of: `low_rank`, `plan`, `dense`."""
        return self.request.label or ("plan" if self.plan else "dense")

    def deciding(self) -> dict[str, Any]:
        """Every setting that decides the outcome, defaults included, as JSON can hold it."""
        settings = {key: value for key, value in self.to_dict().items() if key not in indifferent_settings()}
        settings["request"] = {key: value for key, value in settings["request"].items() if key != "seed"}
        return settings

    def identity(self, *, teacher: str = "", plan: str = "") -> str:
        """A short hash of what decides the outcome: the same settings and inputs are the same run.

        `teacher` and `plan` say what those are, wherever they lie: see `teacher_identity`.
        """
        text = json.dumps([FORMAT, self.deciding(), teacher, plan], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    # ---- from and to what others hold ------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, the request nested."""
        values = {key: getattr(self, key) for key in _types()}
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        return {**plain, "request": self.request.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
        """The inverse of `to_dict`: the whole record, every value of its type, or a ValueError."""
        if not isinstance(content, Mapping):
            raise ValueError(f"a recipe is {short(content)}, not a table")
        content = {**_LATER, **content}
        types = _types()
        missing, unknown = sorted(types.keys() - content.keys()), sorted(content.keys() - types.keys())
        if missing or unknown:
            lacks = f"lacks {', '.join(missing)}" if missing else f"has no {short(', '.join(unknown))[1:-1]}"
            raise ValueError(f"a recipe {lacks}")
        values = {
            key: convert(key, content[key], wanted, from_text=False)
            for key, wanted in types.items()
            if key != "request"
        }
        return cls(**values, request=Request.from_dict(content["request"]))

    def settings(self) -> dict[str, Any]:
        """All settings by the flat keys that people write; of a request only what it says."""
        values = {key: getattr(self, key) for key in _types()}
        request = values.pop("request")
        return {**values, **written(request)}

    def replaced(self, changes: Mapping[str, Any]) -> Recipe:
        """With some settings changed; values may be text. An unknown or ill-typed one is a ValueError.

        The keys are those of a recipe's file; `request` may also be a whole one, as `to_dict` gives it.
        """
        types = _types()
        known = [*(key for key in types if key != "request"), *REQUEST_KEYS]
        converted = {}
        for key, value in changes.items():
            if key not in types and key not in REQUEST_KEYS:
                raise ValueError(f"no setting {key!r}{hint(key, known)}")
            if key in types and key != "request":
                converted[key] = convert(key, value, types[key])
        request = changes.get("request", self.request)
        request = request if isinstance(request, Request) else Request.from_dict(request)
        flat = {key: value for key, value in changes.items() if key in (*REQUEST_KEYS, "plan")}
        request = changed_request(request, flat)
        if request.budget is not None and request.budget != self.request.budget:
            converted.setdefault("plan", "")
        return dataclasses.replace(self, **converted, request=request)


@functools.cache
def _types() -> dict[str, Any]:
    """The type of each setting."""
    return typing.get_type_hints(Recipe)


@functools.cache
def indifferent_settings() -> tuple[str, ...]:
    """The settings that change no outcome.

    >>> from understudy.train import Recipe, indifferent_settings
    >>> "workers" in indifferent_settings(), "seed" in indifferent_settings()
    (True, False)
    >>> Recipe(workers=4).identity() == Recipe().identity()
    True
    """
    return tuple(one.name for one in dataclasses.fields(Recipe) if not one.metadata.get("decides", True))


def recipe_names() -> list[str]:
    """The recipes that come with the package.

    >>> from understudy.train import recipe_names
    >>> "demo" in recipe_names()
    True
    """
    return shipped_names("recipe")


def load_recipe(name: str | Path, changes: Mapping[str, Any] | None = None) -> Recipe:
    """A shipped recipe by name, or one from a TOML file, with `changes` on top.

    >>> from understudy.train import load_recipe
    >>> recipe = load_recipe("demo", {"epochs": 3})
    >>> recipe.epochs, recipe.schedule  # of the changes, of the file
    (3, 'cosine')
    """
    base = Recipe(name=file_name(Path(name).stem) or "custom")
    try:
        return base.replaced(overlaid(recipe_settings(name), changes or {}))
    except RecordError:
        raise
    except ValueError as error:
        raise RecipeError(str(error)) from error


def recipe_settings(name: str | Path) -> dict[str, Any]:
    """What a shipped recipe or a TOML file sets; the rest it leaves to flags and defaults.

    >>> from understudy.train import recipe_settings
    >>> recipe_settings("demo")["schedule"]
    'cosine'
    """
    return read_toml("recipe", name)


Source = Literal["flags", "recipe", "default"]


def settings_by_source(
    recipe: Recipe, from_file: Set[str], from_flags: Set[str]
) -> dict[Source, dict[str, Any]]:
    """Every setting under where it comes from, given the keys that the file and the flags set.

    >>> from understudy.train import load_recipe, recipe_settings, settings_by_source
    >>> flags = {"epochs": 3}
    >>> found = settings_by_source(load_recipe("demo", flags), recipe_settings("demo").keys(), flags.keys())
    >>> found["flags"], found["recipe"]["schedule"], found["default"]["optimiser"]
    ({'epochs': 3}, 'cosine', 'sgd')
    """
    found: dict[Source, dict[str, Any]] = {"flags": {}, "recipe": {}, "default": {}}
    for key, value in recipe.settings().items():
        found["flags" if key in from_flags else "recipe" if key in from_file else "default"][key] = value
    return found


def _check(recipe: Recipe) -> None:
    """A ValueError that names the setting that is out of range."""
    for key, low in (
        ("epochs", 1), ("batch_size", 1), ("train_images", 0), ("learning_rate", 0), ("weight_decay", 0),
        ("cutout", 0), ("crop_padding", 0), ("attention", 0), ("clip", 0), ("checkpoint_seconds", 0),
        ("workers", 0), ("seed", 0), ("gamma", 0), ("momentum", 0), ("auxiliary", 0),
    ):  # fmt: skip
        if getattr(recipe, key) < low:
            raise ValueError(f"{key} is {getattr(recipe, key)!r}, below {low}")
    for key, wanted in _types().items():
        if wanted is float and getattr(recipe, key) > _LARGEST:
            raise ValueError(f"{key} is {getattr(recipe, key)!r}, above {_LARGEST:g}")
        if wanted is int and getattr(recipe, key) > MOST:
            raise ValueError(f"{key} is {getattr(recipe, key)!r}, above {MOST}")
    for key in ("ema", "drop_path", "label_smoothing"):
        if not 0 <= getattr(recipe, key) < 1:
            raise ValueError(f"{key} is {getattr(recipe, key)!r}, not in 0..1")
    if recipe.label_smoothing and recipe.loss != "cross_entropy":
        raise ValueError(f"label_smoothing is for the loss cross_entropy, not {recipe.loss}")
    if not 0 <= recipe.guide <= 1:
        raise ValueError(f"guide is {recipe.guide!r}, not in 0..1")
    if recipe.guide and (recipe.ema or recipe.compile):
        raise ValueError(f"guide does not go with {'ema' if recipe.ema else 'compile'}")
    if recipe.rates != "same" and recipe.optimiser != "adamw":
        raise ValueError(f"rates {recipe.rates!r} is for the optimiser adamw, not {recipe.optimiser}")
    if not 0 < recipe.rise < 1:
        raise ValueError(f"rise is {recipe.rise!r}, not between 0 and 1")
    if len(recipe.betas) != 2 or not all(0 <= beta < 1 for beta in recipe.betas):
        raise ValueError(f"betas is {recipe.betas!r}, not two numbers in 0..1")
    if recipe.temperature <= 0:
        raise ValueError(f"temperature is {recipe.temperature!r}, not above 0")
    for override in recipe.decay_overrides:
        if override.partition("=")[2] not in get_args(Policy):
            raise ValueError(f"decay_overrides holds {override!r}; an example is 'hashed=none'")
    if not 0 <= recipe.distillation <= 1:
        raise ValueError(f"distillation is {recipe.distillation!r}, not in 0..1")
    check_name("name", recipe.name)
    for key in ("network", "data", "teacher", "teacher_network", "plan"):
        check_label(key, getattr(recipe, key))
    _check_student(recipe)


def _check_student(recipe: Recipe) -> None:
    """A ValueError unless what is asked of the student fits together."""
    budget, transform = recipe.request.budget, recipe.request.label
    if recipe.plan and (budget is not None or transform):
        beside = f"transform {transform}" if budget is None else budget.metric
        raise ValueError(f"plan names its transforms and sizes itself: leave out {beside}")
    if transform and budget is None:
        raise ValueError(f"transform {transform!r} needs a budget, one of {', '.join(SIZES[:-1])}")
    if budget is not None and not transform:
        raise ValueError(f"the budget {budget.metric} needs a transform")
    if (recipe.attention or recipe.distillation) and not recipe.teacher and (transform or recipe.plan):
        raise ValueError("attention transfer and distillation need a teacher: a run folder or a weights file")
