"""Structured linear maps: one file, one map; `registry` lists them."""

from .acdc import Acdc
from .base import Transform
from .dense import Dense
from .hashed import Hashed
from .low_rank import LowRank
from .registry import get_transform, known_transforms, list_transforms, register_transform
from .shuffle import Shuffle
from .tensor_train import TensorTrain
from .tucker import Tucker

__all__ = [
    "Acdc",
    "Dense",
    "Hashed",
    "LowRank",
    "Shuffle",
    "TensorTrain",
    "Transform",
    "Tucker",
    "get_transform",
    "known_transforms",
    "list_transforms",
    "register_transform",
]
