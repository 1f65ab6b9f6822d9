"""What is asked of a plan, as a value: which transform where, and how much the student may cost.

A recipe, a grid's cell and a plan hold the same record; text for people is made from it, never read back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from understudy._util.records import from_plain, short
from understudy.transforms import Transform, get_transform, known_transforms
from understudy.transforms.two_factors import TwoFactors

from .budget import Budget, Metric

Spatial = Literal["auto", "separable", "inside", "unfolded"]
_MOST_SEED = 1 << 62
EVERYWHERE = "*"
AUTO = "auto"  # in the place of a transform: whichever loses least, layer by layer
TransformChoice = str | type[Transform] | Mapping[str, str | type[Transform]]


@dataclasses.dataclass(frozen=True)
class Request:
    """A transform for all sites or for those that a pattern names, a budget, and where to look.

    Without a transform nothing is substituted. Patterns are those of `sites`; of several that name a site the
    first counts, and a site that none names stays dense.

    >>> import understudy as us
    >>> request = us.Request((("*", "low_rank"),), us.Budget("ratio", 0.5))
    >>> us.plan(us.create_model("wrn_16_2"), request=request).params
    345818
    """

    transform: tuple[tuple[str, str], ...] = ()  # pattern → transform; "*" is every site
    budget: Budget | None = None
    spatial: Spatial = "auto"
    include: tuple[str, ...] = ()  # empty: all but the first convolution and the last layer
    exclude: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()  # of the transforms that have them
    seed: int = 0
    multiple: int = 1  # of which ranks above it are multiples

    def __post_init__(self) -> None:
        if isinstance(self.multiple, bool) or not isinstance(self.multiple, int) or self.multiple < 1:
            raise ValueError(f"multiple {self.multiple!r} is not a whole number of at least 1")
        if self.spatial not in get_args(Spatial):
            raise ValueError(f"spatial {self.spatial!r} is not one of {', '.join(get_args(Spatial))}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ValueError(f"seed {self.seed!r} is not a whole number")
        if not -_MOST_SEED < self.seed < _MOST_SEED:
            raise ValueError(f"seed {str(self.seed)[:30]} has more than 62 bits")
        self._check_options()

    @classmethod
    def of(
        cls,
        transform: TransformChoice | None = None,
        budget: Budget | None = None,
        *,
        spatial: Spatial = "auto",
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        seed: int = 0,
        multiple: int = 1,
    ) -> Request:
        """A request from what people write: a name or a class, or patterns with one each."""
        return cls(
            transform=assigned(transform),
            budget=budget,
            spatial=spatial,
            include=_patterns("include", include),
            exclude=_patterns("exclude", exclude),
            options=tuple(sorted((options or {}).items())),
            seed=seed,
            multiple=multiple,
        )

    @property
    def transforms(self) -> tuple[str, ...]:
        """The transforms that are asked for, each once."""
        return tuple(dict.fromkeys(name for _, name in self.transform))

    @property
    def label(self) -> str:
        """`low_rank`, or `Linear=shuffle, *.conv2=low_rank`; empty where nothing is substituted."""
        if [pattern for pattern, _ in self.transform] == [EVERYWHERE]:
            return self.transform[0][1]
        return ", ".join(f"{pattern}={name}" for pattern, name in self.transform)

    def only(self, transform: str) -> tuple[tuple[str, str], ...]:
        """The patterns with one transform wherever any may be chosen."""
        return tuple((pattern, transform if name == AUTO else name) for pattern, name in self.transform)

    @property
    def candidates(self) -> list[type[Transform]]:
        """The transforms that a plan of this may hold."""
        return list(dict.fromkeys(one for name in self.transforms for one in candidates(name)))

    def options_of(self, transform: type[Transform]) -> dict[str, str]:
        """The options that a transform has."""
        return {name: value for name, value in self.options if name in transform.options}

    def _check_options(self) -> None:
        made = self.candidates
        for name, value in self.options:
            having = [transform for transform in made if name in transform.options]
            if not having:
                known = sorted({option for transform in made for option in transform.options})
                raise ValueError(
                    f"{' and '.join(self.transforms) or 'no transform'} has no option {name!r} "
                    f"(it has {', '.join(known) or 'none'})"
                )
            for transform in having:
                legal = transform.options[name]
                if value not in legal:
                    raise ValueError(
                        f"option {name} of {transform.name} is {value!r}, not one of {', '.join(legal)}"
                    )

    def to_dict(self) -> dict[str, Any]:
        """As JSON and TOML can hold it."""
        return {
            "transform": dict(self.transform),
            "budget": None if self.budget is None else dataclasses.asdict(self.budget),
            "spatial": self.spatial,
            "include": list(self.include),
            "exclude": list(self.exclude),
            "options": dict(self.options),
            "seed": self.seed,
            "multiple": self.multiple,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Request:
        """The inverse of `to_dict`; a ValueError says what does not belong."""
        if not isinstance(data, Mapping):
            raise ValueError(f"a request is {short(data)}, not a table")
        unknown = set(data) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise ValueError(f"a request has no {short(', '.join(sorted(map(str, unknown))))[1:-1]}")
        held = from_plain(_Written, {**cls().to_dict(), **data})
        budget = held.budget
        return cls.of(
            held.transform or None,
            None if budget is None else Budget(budget.metric, budget.amount),
            spatial=held.spatial,  # type: ignore[arg-type]  # checked by __post_init__
            include=held.include,
            exclude=held.exclude,
            options=held.options,
            seed=held.seed,
            multiple=held.multiple,
        )


@dataclasses.dataclass(frozen=True)
class _Amount:
    """A budget as it is written."""

    metric: Metric
    amount: int | float


@dataclasses.dataclass(frozen=True)
class _Written:
    """A request as it is written."""

    transform: Mapping[str, str] | str
    budget: _Amount | None
    spatial: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    options: Mapping[str, str]
    seed: int
    multiple: int


def assigned(transform: TransformChoice | None) -> tuple[tuple[str, str], ...]:
    """Pattern → transform, from a name, a class, or a mapping of patterns."""
    if transform is None:
        return ()
    if isinstance(transform, Mapping):
        for pattern in transform:
            if not isinstance(pattern, str) or not pattern:
                raise ValueError(f"{pattern!r} is not a pattern: a module's path or type, such as '*.conv2'")
        if not transform:
            raise ValueError("transform is empty: name at least one, such as {'Linear': 'shuffle'}")
        return tuple((pattern, _name(one)) for pattern, one in transform.items())
    return ((EVERYWHERE, _name(transform)),)


def candidates(name: str) -> list[type[Transform]]:
    """The transform of a name; for "auto" all that a plan may choose from."""
    if name == AUTO:
        return [transform for transform in known_transforms().values() if _is_for_auto(transform)]
    return [get_transform(name)]


def _is_for_auto(transform: type[Transform]) -> bool:
    """In some way: by itself, or taken inside with a fit of its own."""
    return transform.is_for_auto or (issubclass(transform, TwoFactors) and transform.is_closed_inside)


def _name(transform: str | type[Transform]) -> str:
    if isinstance(transform, int | float):
        raise ValueError(f"transform is {transform!r}, not a name: a budget is given as one, ratio=0.5")
    return AUTO if transform == AUTO else get_transform(transform).name


def _patterns(label: str, patterns: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise TypeError(f"{label} is {patterns!r}; give a list of patterns: [{patterns!r}]")
    for pattern in patterns or ():
        if not isinstance(pattern, str):
            raise ValueError(f"{label} holds {pattern!r}, which is not a pattern")
    return tuple(patterns or ())
