"""The registry of structured linear maps: one line a transform."""

from .acdc import Acdc
from .base import Transform
from .dense import Dense
from .hashed import Hashed
from .low_rank import LowRank
from .shuffle import Shuffle
from .tensor_train import TensorTrain
from .tucker import Tucker

_TRANSFORMS: tuple[type[Transform], ...] = (
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
    return {transform.name: transform for transform in _TRANSFORMS}


__all__ = [
    "Acdc",
    "Dense",
    "Hashed",
    "LowRank",
    "Shuffle",
    "TensorTrain",
    "Transform",
    "Tucker",
    "transforms",
]
