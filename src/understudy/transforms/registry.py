"""Every transform by name: those of this package, and those registered from outside."""

from __future__ import annotations

from understudy._util.nearest import hint

from .acdc import Acdc
from .base import Transform
from .dense import Dense
from .hashed import Hashed
from .low_rank import LowRank
from .shuffle import Shuffle
from .tensor_train import TensorTrain
from .tucker import Tucker

_BUILT_IN: tuple[type[Transform], ...] = (
    Dense,
    LowRank,
    TensorTrain,
    Tucker,
    Acdc,
    Hashed,
    Shuffle,
)


def transforms() -> dict[str, type[Transform]]:
    """Every transform by its name."""
    return {transform.name: transform for transform in _BUILT_IN}


def find_transform(name: str | type[Transform]) -> type[Transform]:
    """A transform by its name, or itself; a ValueError names the nearest."""
    known = transforms()
    if isinstance(name, type) and issubclass(name, Transform) and known.get(name.name) is name:
        return name
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"no transform {name!r} among {', '.join(known)}{hint(str(name), known)}")
    return known[name]
