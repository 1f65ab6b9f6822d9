"""Every transform by name: those of this package, and those registered from outside.

From outside by a call, `register_transform(MyTransform)`, or by an entry point of an installed package:

    [project.entry-points."understudy.transforms"]
    my_transform = "my_package.my_transform:MyTransform"
"""

from __future__ import annotations

import importlib.metadata
import re
from typing import TypeVar

from understudy._util.nearest import hint

from .acdc import Acdc
from .base import Transform
from .blast import Blast
from .block_circulant import BlockCirculant
from .btt import Btt
from .dense import Dense
from .hashed import Hashed
from .kronecker import Kronecker
from .ldr import Ldr
from .low_rank import LowRank
from .low_rank_sparse import LowRankSparse
from .pivoted import Pivoted
from .shuffle import Shuffle
from .tensor_train import TensorTrain
from .toeplitz_like import ToeplitzLike
from .tucker import Tucker
from .two_factors import TwoFactors

ENTRY_POINTS = "understudy.transforms"
T = TypeVar("T", bound=type[Transform])

_REGISTERED: dict[str, type[Transform]] = {
    transform.name: transform
    for transform in (
        *(Dense, LowRank, TensorTrain, Tucker, Acdc, Hashed, Shuffle),  # of the paper, in its order
        *(Btt, Kronecker, BlockCirculant, ToeplitzLike, Ldr, Blast, LowRankSparse, Pivoted),
    )
}
_BROKEN: dict[str, str] = {}  # the name of an entry point that failed → whose it is, and why
_LOADED: list[str] = []  # the group of entry points, once it has been looked at


def register_transform(transform: T) -> T:
    """Add a transform to those that plans, commands and reports know by name; usable as a decorator.

    >>> from understudy.transforms.low_rank import LowRank
    >>> register_transform(LowRank)  # again: the same class under the same name changes nothing
    <class 'understudy.transforms.low_rank.LowRank'>
    """
    if not (isinstance(transform, type) and issubclass(transform, Transform)):
        raise TypeError(f"{transform!r} is not a subclass of understudy.Transform")
    for attribute in ("name", "knob_name"):
        value = getattr(transform, attribute, None)
        if not isinstance(value, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", value):
            legal = "a name of lower-case letters, digits and _"
            raise ValueError(f"{attribute} of {transform.__name__} is {value!r}, not {legal}")
    abstract = getattr(transform, "__abstractmethods__", ())
    if abstract:
        raise TypeError(f"{transform.__name__} lacks {', '.join(sorted(abstract))}")
    holder = _REGISTERED.get(transform.name)
    if holder is not None and holder is not transform:
        raise ValueError(f"the name {transform.name!r} is taken by {holder.__module__}.{holder.__qualname__}")
    _REGISTERED[transform.name] = transform
    return transform


def known_transforms() -> dict[str, type[Transform]]:
    """Every transform by its name, those of installed packages included."""
    _load_entry_points()
    return dict(_REGISTERED)


def list_transforms() -> list[str]:
    """The names of all transforms.

    >>> "low_rank" in list_transforms()
    True
    """
    return list(known_transforms())


def get_transform(name: str | type[Transform]) -> type[Transform]:
    """A transform by its name, or itself if it is registered; a ValueError names the nearest.

    >>> get_transform("low_rank").knob_name
    'rank'
    """
    known = known_transforms()
    if isinstance(name, type) and issubclass(name, Transform):
        if known.get(getattr(name, "name", "")) is not name:
            raise ValueError(
                f"{name.__name__} is not registered: register_transform({name.__name__}) does so"
            )
        return name
    if isinstance(name, str) and name in known:
        return known[name]
    if isinstance(name, str) and name in _BROKEN:
        raise ValueError(f"the transform {name!r} {_BROKEN[name]}")
    broken = "".join(f"; {failed!r} {reason}" for failed, reason in _BROKEN.items())
    raise ValueError(f"no transform {name!r} among {', '.join(known)}{hint(str(name), known)}{broken}")


def with_two_factors(transform: type[Transform]) -> type[TwoFactors]:
    """A transform that can be taken inside; a ValueError names those that can."""
    if issubclass(transform, TwoFactors):
        return transform
    able = [name for name, known in known_transforms().items() if issubclass(known, TwoFactors)]
    raise ValueError(
        f"{transform.name} cannot be taken inside: a depthwise convolution stands between two factors, as "
        f"{', '.join(able)} have them"
    )


def _load_entry_points() -> None:
    """Register what installed packages offer, once; one that fails is noted, and breaks nothing else."""
    if _LOADED:
        return
    _LOADED.append(ENTRY_POINTS)  # first: a package that looks at the registry while it loads is answered
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            found = point.load()
            name = getattr(found, "name", None)
            if isinstance(name, str) and name != point.name:
                raise ValueError(f"the class is named {name!r}")
            register_transform(found)
        except Exception as error:  # any code of others may run here
            package = point.dist.name if point.dist is not None else point.value
            _BROKEN[point.name] = (
                f"of the package {package} cannot be loaded: {type(error).__name__}: {error}"
            )
