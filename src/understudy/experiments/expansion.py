"""Blocks of a grid → cells: each block is the product of its lists."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from understudy._util.quantities import parse_count
from understudy.networks import nets
from understudy.networks.models import create_model
from understudy.train import Recipe, teacher_identity
from understudy.transforms import get_transform, known_transforms
from understudy.transforms.dense import Dense

from .cell import Cell, Role, file_name
from .checks import BUDGETS, GridError, as_list, as_settings, check_keys

_STUDENT_KEYS = ("transforms", "networks", "seeds", "attention", "crs", "settings", *BUDGETS)
_BASELINE_KEYS = ("networks", "narrow", "seeds", "attention", "settings")


@dataclasses.dataclass(frozen=True)
class Expansion:
    """Makes the cells of one grid."""

    base: Recipe
    classes: int
    networks: list[str]
    seeds: list[int]
    teacher_settings: Mapping[str, Any]

    @property
    def existing(self) -> str:
        """The trained network that stands for a teacher, where none is trained."""
        return str(self.teacher_settings.get("existing", ""))

    def teachers(self) -> list[Cell]:
        """One for each network."""
        if not self.existing:
            return [self.teacher(network) for network in self.networks]
        if len(self.teacher_settings) > 1 or len(self.networks) > 1:
            raise GridError("[teacher] existing = … takes no other settings, and a grid of one network")
        return []

    def teacher(self, network: str) -> Cell:
        """The dense network, trained by itself."""
        changes = dict(self.teacher_settings)
        seed = changes.pop("seed", self.seeds[0])
        alone = {"attention": 0, "distillation": 0, "init": "fresh"}
        recipe = self.base.replaced(
            {**as_settings("[teacher]", changes), **alone, "network": network, "seed": seed}
        )
        return Cell(f"{self._prefix(network)}teacher-seed-{recipe.seed}", "teacher", recipe)

    def students(self, block: Mapping[str, Any]) -> Iterator[Cell]:
        """Transforms × budgets × attention × decay × seeds."""
        check_keys("[[students]]", block, _STUDENT_KEYS)
        budgets = [key for key in BUDGETS if key in block]
        if len(budgets) != 1:
            got = " and ".join(budgets) or "none"
            raise GridError(f"[[students]] needs one of {', '.join(BUDGETS)}; it has {got}")
        if "transforms" not in block:
            raise GridError("[[students]] needs transforms, such as ['low_rank'], or 'all'")
        names = as_list("transforms", block["transforms"], str)
        if names == ["all"]:  # but the dense one, which has a single size
            names = [name for name, transform in known_transforms().items() if transform is not Dense]
        for name in names:
            get_transform(name)
        key = budgets[0]
        kind: type = {"params": str, "mult_adds": str, "knob": int}.get(key, float)
        settings = as_settings("[students.settings]", block.get("settings", {}))
        changed = self.base.replaced(settings)
        for network, transform, amount, attention, crs, seed in itertools.product(
            self._networks(block),
            names,
            as_list(key, block[key], kind),
            as_list("attention", block.get("attention", bool(changed.attention)), bool),
            as_list("crs", block.get("crs", changed.decay == "crs"), bool),
            as_list("seeds", block.get("seeds", self.seeds), int),
        ):
            asked, unit = file_name(amount), key.replace("_", "-")
            label = {"params": asked, "mult_adds": f"{asked}-{unit}"}.get(key, f"{key}-{asked}")
            marks = f"{'-at' if attention else ''}{'-crs' if crs else ''}"
            yield self._taught(
                network,
                "student",
                f"{self._prefix(network)}{transform}-{label}{marks}-seed-{seed}",
                {
                    **settings,
                    "network": network,
                    "transform": transform,
                    key: amount,
                    "attention": _beta(changed) if attention else 0,
                    "decay": "crs" if crs else "none",
                    "seed": seed,
                },
                budget=f"{asked} {unit}" if kind is str else f"{unit} {asked}",
            )

    def baselines(self, block: Mapping[str, Any]) -> Iterator[Cell]:
        """Dense networks by name, and narrower ones by parameters; × attention × seeds."""
        check_keys("[[baselines]]", block, _BASELINE_KEYS)
        if "networks" not in block and "narrow" not in block:
            raise GridError("[[baselines]] needs networks by name, or narrow with counts of parameters")
        settings = as_settings("[baselines.settings]", block.get("settings", {}))
        changed = self.base.replaced(settings)
        for cell, attention, seed in itertools.product(
            [*self._dense(block), *self._narrow(block)],
            as_list("attention", block.get("attention", False), bool),
            as_list("seeds", block.get("seeds", self.seeds), int),
        ):
            yield self._taught(
                cell.teacher,
                "baseline",
                f"{cell.name}{'-at' if attention else ''}-seed-{seed}",
                {
                    **settings,
                    "network": cell.network,
                    "seed": seed,
                    "attention": _beta(changed) if attention else 0,
                },
                budget=cell.budget,
                unreachable=cell.unreachable,
            )

    def _dense(self, block: Mapping[str, Any]) -> Iterator[_Baseline]:
        for network in as_list("networks", block["networks"], str) if "networks" in block else ():
            check_network(network)
            yield _Baseline(file_name(network), network, teacher=self.networks[0])

    def _narrow(self, block: Mapping[str, Any]) -> Iterator[_Baseline]:
        counts = as_list("narrow", block["narrow"], str) if "narrow" in block else []
        for teacher, count in itertools.product(self.networks, counts):
            network, problem = _narrower(teacher, parse_count(count), self.classes)
            asked = file_name(count)
            name = f"{self._prefix(teacher)}narrow-{asked}"
            yield _Baseline(name, network, teacher, f"{asked} params", problem)

    def _taught(self, network: str, role: Role, name: str, changes: Mapping[str, Any], **facts: str) -> Cell:
        """A cell that learns from the teacher of `network`, if its settings need one."""
        recipe = self.base.replaced({**changes, "teacher": self.existing or self.teacher(network).name})
        if not (recipe.attention or recipe.distillation or recipe.init == "project"):
            return Cell(name, role, dataclasses.replace(recipe, teacher=""), **facts)
        identity = teacher_identity(self.existing) if self.existing else self.teacher(network).id
        return Cell(name, role, recipe, teacher=identity, **facts)

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
    budget: str = ""
    unreachable: str = ""


def check_network(name: str) -> None:
    """Refuse a name of no network, with the nearest; one of another library is made to see."""
    if not nets.is_builtin(name):
        create_model(name)


def _beta(recipe: Recipe) -> float:
    if not recipe.attention:
        raise GridError("attention is on, but its weight in the recipe is 0: set attention in [settings]")
    return recipe.attention


@lru_cache(maxsize=256)
def _narrower(network: str, params: int, classes: int) -> tuple[str, str]:
    """The narrower network, or the network itself and why there is none."""
    try:
        return nets.narrower(network, params, classes), ""
    except ValueError as error:
        return network, str(error)
