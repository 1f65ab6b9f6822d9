"""What takes the place of one dense layer, as a record; and the record ⇄ the layer itself."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from understudy.transforms import Transform, get_transform
from understudy.transforms.registry import with_two_factors
from understudy.transforms.two_factors import TwoFactors

from .conv import Conv
from .dense import CONVOLUTIONS, Kind, Shell, the_dense_map
from .execution import DEFAULT, Execution
from .geometry import Geometry
from .grouped import GroupConv, GroupedConv
from .inside import InsideConv
from .layer import Layer
from .linear import Linear
from .separable import SeparableConv

if TYPE_CHECKING:
    from typing_extensions import Self

Way = Literal["pointwise", "separable", "inside", "unfolded"]
MOST_FEATURES = 1 << 24  # of one side of a layer
_MOST_SEED = 1 << 62
_KERNEL_SIZES: dict[Kind, int] = {"linear": 0, "conv1d": 1, "conv2d": 2, "conv3d": 3}


@dataclasses.dataclass(frozen=True)
class Spec:
    """A transform, but for its shape."""

    transform: str
    knob: int
    seed: int = 0
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if type(self.seed) is not int or not -_MOST_SEED < self.seed < _MOST_SEED:
            raise ValueError(f"seed {str(self.seed)[:30]} is not a whole number of at most 62 bits")

    def check(self, in_features: int, out_features: int) -> None:
        """Raise ValueError unless there is such a transform, with this knob and these options."""
        made = get_transform(self.transform)
        made.check_knob(in_features, out_features, self.knob)
        for name, value in self.options.items():
            if value not in made.options.get(name, ()):
                legal = ", ".join(made.options.get(name, ())) or "no such option"
                raise ValueError(f"option {name} of {made.name} is {value!r}, not one of: {legal}")

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
        if self.way == "inside" and self.spec is not None:
            with_two_factors(get_transform(self.spec.transform))

    def check_spec(self) -> None:
        """Raise ValueError unless a layer can have this shape, and its transform these settings."""
        shape = (self.in_features, self.out_features, self.matrix_in_features, *self.kernel)
        if self.kind not in _KERNEL_SIZES or len(self.kernel) != _KERNEL_SIZES[self.kind]:
            raise ValueError(f"{self.path!r}: a {self.kind} has no kernel of {len(self.kernel)} sizes")
        if not all(1 <= size <= MOST_FEATURES for size in shape):
            raise ValueError(f"{self.path!r}: sizes {shape} are not in 1..{MOST_FEATURES}")
        if self.spec is not None:
            try:
                self.spec.check(self.matrix_in_features, self.out_features // self.groups)
            except ValueError as error:
                raise ValueError(f"{self.path!r}: {error}") from error

    @property
    def specs(self) -> list[Spec]:
        """That of every group; taps are drawn from the seed between two groups."""
        assert self.spec is not None
        return [
            dataclasses.replace(self.spec, seed=self.spec.seed + 2 * group) for group in range(self.groups)
        ]

    @property
    def matrix_in_features(self) -> int:
        """Columns of the structured matrix, of one group."""
        return matrix_in_features(self.way, self.in_features // self.groups, self.kernel)

    @classmethod
    def of(cls, path: str, layer: Layer) -> Self:
        """The record of a layer: `build` makes an equal one from it, but for its weights."""
        transform = layer.transform
        kind: Kind = "linear"
        way: Way = "pointwise"
        kernel: tuple[int, ...] = ()
        in_features, groups = transform.in_features, len(layer.transforms)
        if isinstance(layer, GroupConv | GroupedConv):
            kernel, in_features = layer.geometry.kernel, layer.in_channels
            kind = CONVOLUTIONS[layer.geometry.dims - 1]
            way = _way(layer.convs[0] if isinstance(layer, GroupedConv) else layer)
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
        transforms = [
            spec.build(self.matrix_in_features, self.out_features // self.groups, device, weight.dtype)
            for spec in self.specs
        ]
        bias, geometry = found.bias, found.geometry
        layer: Layer
        if geometry is None:
            layer = Linear(transforms[0], bias, Shell.of(found))
        elif self.groups > 1:
            layer = GroupedConv([self._wrapped(one, geometry, None) for one in transforms], bias)
        else:
            layer = self._wrapped(transforms[0], geometry, bias)
        layer.execution = self.execution
        for parameter in layer.parameters():
            parameter.requires_grad_(weight.requires_grad)
        if bias is not None and layer.bias is not None:
            layer.bias.requires_grad_(bias.requires_grad)
        return layer if draw else layer.to_empty(device=weight.device)

    def _wrapped(self, transform: Transform, geometry: Geometry, bias: Tensor | None) -> GroupConv:
        """A convolution around a transform, in this way."""
        if self.way == "inside":
            assert isinstance(transform, TwoFactors)
            return InsideConv(transform, geometry, bias)
        return (SeparableConv if self.way == "separable" else Conv)(transform, geometry, bias)


def _way(conv: GroupConv) -> Way:
    """The way of a convolution."""
    if isinstance(conv, InsideConv):
        return "inside"
    if conv.geometry.area == 1:
        return "pointwise"
    return "separable" if isinstance(conv, SeparableConv) else "unfolded"


def depthwise_taps(
    transform: type[Transform], way: Way, shape: tuple[int, int], knob: int, *, groups: int, area: int
) -> int:
    """Parameters of a stand-in's depthwise convolution, where it has one; `shape` is that of one group."""
    if way == "inside":
        return groups * with_two_factors(transform).waist(*shape, knob).width * area
    return groups * shape[0] * area if way == "separable" else 0


def matrix_in_features(way: Way, in_features: int, kernel: Sequence[int]) -> int:
    """The channels, or all values of an unfolded patch."""
    return in_features * math.prod(kernel) if way == "unfolded" else in_features
