"""Layers around a transform: kernel, stride, padding, bias, and how they run."""

from .conv import Conv
from .execution import Execution
from .geometry import Geometry
from .grouped import GroupedConv
from .inside import InsideConv
from .layer import Layer, check_plain, recompute_nothing_, stand_ins
from .linear import Linear
from .separable import SeparableConv

__all__ = [
    "Conv",
    "Execution",
    "Geometry",
    "GroupedConv",
    "InsideConv",
    "Layer",
    "Linear",
    "SeparableConv",
    "check_plain",
    "recompute_nothing_",
    "stand_ins",
]
