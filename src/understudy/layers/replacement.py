"""What takes the place of one dense layer, as a record."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch

from understudy.transforms import Transform, find_transform

if TYPE_CHECKING:
    from typing_extensions import Self

Kind = Literal["linear", "conv1d", "conv2d", "other"]
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
        made = find_transform(self.transform)
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

    @property
    def matrix_in_features(self) -> int:
        """Columns of the structured matrix."""
        return matrix_in_features(self.way, self.in_features, self.kernel)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of dataclasses.asdict."""
        spec = None if data["spec"] is None else Spec(**data["spec"])
        return cls(**{**data, "kernel": tuple(data["kernel"]), "spec": spec})


def matrix_in_features(way: Way, in_features: int, kernel: Sequence[int]) -> int:
    """The channels, or all values of an unfolded patch."""
    return in_features * math.prod(kernel) if way == "unfolded" else in_features
