"""Structured linear maps: one file, one map; `registry` lists them.

Here are the contract and the registry alone: a map is had by its name, `get_transform("btt")`, or as a class
from its own file, `from understudy.transforms.btt import Btt`.
"""

from .base import Transform
from .registry import get_transform, known_transforms, list_transforms, register_transform

__all__ = [
    "Transform",
    "get_transform",
    "known_transforms",
    "list_transforms",
    "register_transform",
]
