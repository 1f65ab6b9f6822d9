"""What takes the place of one dense layer, as a record; and the record ⇄ the layer itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from understudy.transforms import Transform, get_transform

from .conv import Conv
from .dense import CONVOLUTIONS, Kind, Shell, the_dense_map
from .execution import DEFAULT, Execution
from .grouped import GroupedConv
from .layer import Layer
from .linear import Linear
from .separable import SeparableConv

if TYPE_CHECKING:
    from typing_extensions import Self

Way = Literal["pointwise", "separable", "unfolded"]


@dataclasses.dataclass(frozen=True)
class Spec:
    """A transform, but for its shape."""

    transform: str
    knob: int
    seed: int = 0
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def build(
        self, in_features: int, out_features: int, device: torch.device | None, dtype: torch.dtype | None
    ) -> Transform:
        """Make it, with fresh parameters."""
        made = get_transform(self.transform)
        options: dict[str, Any] = dict(self.options)
        return made(
            in_features, out_features, self.knob, seed=self.seed, device=device, dtype=dtype, **options
        )


@dataclasses.dataclass(frozen=True)
class Replacement:
    """What takes the place of one dense layer, which is named by its path and shape."""

    path: str
    kind: Kind
    in_features: int
    out_features: int
    kernel: tuple[int, ...]
    way: Way
    spec: Spec | None  # None: left dense
    execution: Execution = dataclasses.field(default=DEFAULT, kw_only=True)
    groups: int = dataclasses.field(default=1, kw_only=True)  # each with a structured matrix of its own

    def __post_init__(self) -> None:
        if type(self.groups) is not int or self.groups < 1:
            raise ValueError(f"groups is {self.groups!r}, not a whole number of at least 1")
        if self.in_features % self.groups or self.out_features % self.groups:
            shape = f"{self.in_features} → {self.out_features}"
            raise ValueError(f"{self.groups} groups do not divide the channels of {shape}")

    @property
    def matrix_in_features(self) -> int:
        """Columns of the structured matrix, of one group."""
        return matrix_in_features(self.way, self.in_features // self.groups, self.kernel)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of dataclasses.asdict."""
        spec = None if data["spec"] is None else Spec(**data["spec"])
        execution = Execution(**data.get("execution", {}))
        return cls(**{**data, "kernel": tuple(data["kernel"]), "spec": spec, "execution": execution})

    @classmethod
    def of(cls, path: str, layer: Layer) -> Self:
        """The record of a layer: `build` makes an equal one from it, but for its weights."""
        transform = layer.transform
        kind: Kind = "linear"
        way: Way = "pointwise"
        kernel: tuple[int, ...] = ()
        in_features, groups = transform.in_features, len(layer.transforms)
        if isinstance(layer, Conv | SeparableConv | GroupedConv):
            kernel, in_features = layer.geometry.kernel, layer.in_channels
            kind = CONVOLUTIONS[layer.geometry.dims - 1]
            if layer.geometry.area > 1:
                inner = layer.convs[0] if isinstance(layer, GroupedConv) else layer
                way = "separable" if isinstance(inner, SeparableConv) else "unfolded"
        spec = Spec(transform.name, transform.knob, transform.seed, transform.spec_options())
        out_features, execution = groups * transform.out_features, layer.execution
        return cls(
            path, kind, in_features, out_features, kernel, way, spec, execution=execution, groups=groups
        )

    def build(self, dense: nn.Module, *, draw: bool = True) -> Layer:
        """A layer for the place of `dense`, with its geometry, its bias and its device.

        Without `draw` nothing is drawn and all memory is as it was found: for weights that come from a file.
        """
        assert self.spec is not None
        found = the_dense_map(dense)
        weight = dense.get_parameter("weight")
        device = weight.device if draw else torch.device("meta")
        specs = [
            dataclasses.replace(self.spec, seed=self.spec.seed + 2 * group) for group in range(self.groups)
        ]
        transforms = [
            spec.build(self.matrix_in_features, self.out_features // self.groups, device, weight.dtype)
            for spec in specs  # taps are drawn from the seed between two groups
        ]
        bias, geometry = found.bias, found.geometry
        wrap = SeparableConv if self.way == "separable" else Conv
        layer: Layer
        if geometry is None:
            layer = Linear(transforms[0], bias, Shell.of(found))
        elif self.groups > 1:
            layer = GroupedConv([wrap(transform, geometry) for transform in transforms], bias)
        else:
            layer = wrap(transforms[0], geometry, bias)
        layer.execution = self.execution
        for parameter in layer.parameters():
            parameter.requires_grad_(weight.requires_grad)
        if bias is not None and layer.bias is not None:
            layer.bias.requires_grad_(bias.requires_grad)
        return layer if draw else layer.to_empty(device=weight.device)


def matrix_in_features(way: Way, in_features: int, kernel: Sequence[int]) -> int:
    """The channels, or all values of an unfolded patch."""
    return in_features * math.prod(kernel) if way == "unfolded" else in_features
