"""Blocks of a grid → cells: each block is the product of its lists."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal

from understudy._util.names import file_name
from understudy.data import Facts
from understudy.networks import nets, smaller
from understudy.networks.models import create_model
from understudy.planning.budget import METRICS, Budget, Metric
from understudy.planning.request import Request, assigned
from understudy.results import Role
from understudy.train import Recipe, RunError, teacher_identity

from .cell import Cell, budget_name, structure_name
from .checks import GridError, as_budgets, as_list, as_settings, as_transforms, check_keys

_STUDENT_KEYS = (
    "transforms",
    "networks",
    "seeds",
    "attention",
    "crs",
    "spatial",
    "settings",
    "turn",
    *METRICS,
)
_BASELINE_KEYS = ("networks", "narrow", "shallow", "metric", "seeds", "attention", "settings", "turn")
_COUNTED: tuple[Metric, ...] = ("params", "mult_adds")  # of a dense network
Form = Literal["narrow", "shallow"]


@dataclasses.dataclass(frozen=True)
class Expansion:
    """Makes the cells of one grid."""

    base: Recipe
    facts: Facts
    networks: list[str]
    seeds: list[int]
    teacher_settings: Mapping[str, Any]
    options: Mapping[str, str]

    @property
    def existing(self) -> str:
        """The trained network that stands for a teacher, where none is trained."""
        return str(self.teacher_settings.get("existing", ""))

    def teachers(self) -> list[Cell]:
        """One for each network."""
        if not self.existing:
            return [*self._teachers.values()]
        if len(self.teacher_settings) > 1 or len(self.networks) > 1:
            raise GridError("[teacher] existing = … takes no other settings, and a grid of one network")
        return []

    @cached_property
    def _teachers(self) -> dict[str, Cell]:
        return {network: self._teacher(network) for network in self.networks}

    def _teacher(self, network: str) -> Cell:
        """The dense network, trained by itself."""
        changes = dict(self.teacher_settings)
        seed = changes.pop("seed", self.seeds[0])
        settings, _ = as_settings("[teacher]", changes)
        alone = {"attention": 0, "distillation": 0, "init": "fresh", "request": Request()}
        recipe = self.base.replaced({**settings, **alone, "network": network, "seed": seed})
        return Cell(f"{self._prefix(network)}teacher-seed-{recipe.seed}", "teacher", recipe)

    def students(self, block: Mapping[str, Any]) -> Iterator[Cell]:
        """Transforms × ways × budgets × attention × decay × seeds."""
        check_keys("[[students]]", block, _STUDENT_KEYS)
        budgets = as_budgets(block)
        if "transforms" not in block:
            raise GridError("[[students]] needs transforms, such as ['low_rank'], or 'all'")
        settings, options = as_settings("[students.settings]", block.get("settings", {}))
        changed = self.base.replaced(settings)
        requests = [
            dataclasses.replace(changed.request, transform=assigned(transform))
            for transform in as_transforms(block["transforms"])
        ]
        for option in options:
            if not any(_has(request, option) for request in requests):
                raise GridError(f"[students.settings] sets the option {option!r}, which no transform has")
        for network, request, spatial, budget, attention, crs, seed in itertools.product(
            self._networks(block),
            [_with_options(request, {**self.options, **options}) for request in requests],
            as_list("spatial", block.get("spatial", changed.request.spatial), str),
            budgets,
            as_list("attention", block.get("attention", bool(changed.attention)), bool),
            as_list("crs", block.get("crs", changed.decay == "crs"), bool),
            as_list("seeds", block.get("seeds", self.seeds), int),
        ):
            way = f"-{file_name(spatial)}" if spatial != changed.request.spatial else ""
            marks = f"{way}{'-at' if attention else ''}{'-crs' if crs else ''}"
            name = f"{structure_name(request)}-{budget_name(budget)}{marks}-seed-{seed}"
            yield self._taught(
                network,
                "student",
                f"{self._prefix(network)}{name}",
                {
                    **settings,
                    "network": network,
                    "request": dataclasses.replace(request, budget=budget, spatial=spatial),
                    "attention": _beta(changed) if attention else 0,
                    "decay": "crs" if crs else "none",
                    "seed": seed,
                },
                budget,
            )

    def baselines(self, block: Mapping[str, Any]) -> Iterator[Cell]:
        """Dense networks by name, narrower and shallower ones by what they cost; × attention × seeds."""
        check_keys("[[baselines]]", block, _BASELINE_KEYS)
        if not {"networks", "narrow", "shallow"} & block.keys():
            raise GridError("[[baselines]] needs networks by name, or narrow or shallow with counts")
        settings, _ = as_settings("[baselines.settings]", block.get("settings", {}))
        changed = self.base.replaced(settings)
        for dense, attention, seed in itertools.product(
            [*self._dense(block), *self._smaller(block, "narrow"), *self._smaller(block, "shallow")],
            as_list("attention", block.get("attention", False), bool),
            as_list("seeds", block.get("seeds", self.seeds), int),
        ):
            cell = self._taught(
                dense.teacher,
                "baseline",
                f"{dense.name}{'-at' if attention else ''}-seed-{seed}",
                {
                    **settings,
                    "network": dense.network,
                    "request": Request(),
                    "seed": seed,
                    "attention": _beta(changed) if attention else 0,
                },
                dense.budget,
            )
            yield dataclasses.replace(
                cell,
                unreachable=dense.unreachable,
                form=dense.form,
                form_of=dense.teacher if dense.form else "",
            )

    def _dense(self, block: Mapping[str, Any]) -> Iterator[_Baseline]:
        for network in as_list("networks", block["networks"], str) if "networks" in block else ():
            check_network(network)
            yield _Baseline(file_name(network), network, teacher=self.networks[0])

    def _smaller(self, block: Mapping[str, Any], form: Form) -> Iterator[_Baseline]:
        counts = as_list(form, block[form], str) if form in block else []
        metric = block.get("metric", "params")
        if metric not in _COUNTED:
            raise GridError(f"metric is {metric!r}, not one of {', '.join(_COUNTED)}")
        for teacher, count in itertools.product(self.networks, counts):
            budget = Budget(metric, count)
            network, problem = _smaller(form, teacher, budget, self.facts)
            name = f"{self._prefix(teacher)}{form}-{budget_name(budget)}"
            yield _Baseline(name, network, teacher, budget, form, problem)

    def _taught(
        self,
        network: str,
        role: Role,
        name: str,
        changes: Mapping[str, Any],
        budget: Budget | None,
    ) -> Cell:
        """A cell that learns from the teacher of `network`, if its settings need one."""
        recipe = self.base.replaced({**changes, "teacher": self.existing or self._teachers[network].name})
        if not (recipe.attention or recipe.distillation or recipe.init == "project"):
            return Cell(name, role, dataclasses.replace(recipe, teacher=""), budget)
        if recipe.network != network:
            recipe = dataclasses.replace(recipe, teacher_network=network)
        identity = _existing(self.existing) if self.existing else self._teachers[network].id
        return Cell(name, role, recipe, budget, identity)

    def _networks(self, block: Mapping[str, Any]) -> list[str]:
        chosen = as_list("networks", block.get("networks", self.networks), str)
        for network in chosen:
            if network not in self.networks:
                raise GridError(f"{network!r} is not among the grid's networks, {', '.join(self.networks)}")
        return chosen

    def _prefix(self, network: str) -> str:
        return f"{file_name(network)}-" if len(self.networks) > 1 else ""


@dataclasses.dataclass(frozen=True)
class _Baseline:
    """A dense network to train beside the students, and the network whose teacher may teach it."""

    name: str
    network: str
    teacher: str
    budget: Budget | None = None
    form: Form | Literal[""] = ""  # of the teacher's network, where it is one
    unreachable: str = ""


def check_network(name: str) -> None:
    """Refuse a name of no network, with the nearest; one of another library is made to see."""
    if not nets.is_builtin(name):
        create_model(name)


def _has(request: Request, option: str) -> bool:
    return any(option in transform.options for transform in request.candidates)


def _with_options(request: Request, options: Mapping[str, str]) -> Request:
    """With those options that its transforms have."""
    own = {name: value for name, value in options.items() if _has(request, name)}
    return dataclasses.replace(request, options=tuple(sorted(own.items())))


def _existing(source: str) -> str:
    try:
        return teacher_identity(source)
    except RunError as error:
        raise GridError(str(error)) from error


def _beta(recipe: Recipe) -> float:
    if not recipe.attention:
        raise GridError("attention is on, but its weight in the recipe is 0: set attention in [settings]")
    return recipe.attention


@lru_cache(maxsize=256)
def _smaller(form: Form, network: str, budget: Budget, facts: Facts) -> tuple[str, str]:
    """The narrower or shallower network, or the network itself and why there is none."""
    make = smaller.narrower if form == "narrow" else smaller.shallower
    image = facts.image_shape if budget.metric == "mult_adds" else None
    try:
        return make(network, int(budget.amount), facts.classes, image=image), ""
    except ValueError as error:
        return network, str(error)
