"""W = second · first: families that lead through a waist, where taps can stand."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from .base import Transform


class Waist(NamedTuple):
    """What lies between the two factors of a map, and what each of them costs."""

    width: int  # channels
    before: int  # mult-adds for each vector that comes in
    after: int  # mult-adds for each vector that goes out


class TwoFactors(Transform):
    """A map whose first stage is the parameter that `shapes` names first, (…, channels that it reads).

    The outputs of that stage, in the order of the parameter's leading axes, are the waist. A depthwise
    convolution may stand there: of a k×k convolution the map is then "taken inside" (see `Inside`).
    """

    is_closed_inside: ClassVar[bool] = False  # `project_inside_` ends where its own least squares end

    @classmethod
    def first_factor(cls, in_features: int, out_features: int, knob: int) -> str:
        """The name of the parameter that the input meets first."""
        return next(iter(cls.shapes(in_features, out_features, knob)))

    @classmethod
    def waist(cls, in_features: int, out_features: int, knob: int) -> Waist:
        """Its width, and the mult-adds on both sides.

        >>> from understudy.transforms.shuffle import Shuffle
        >>> Shuffle.waist(64, 128, 4)
        Waist(width=32, before=512, after=1024)
        """
        *leading, columns = next(iter(cls.shapes(in_features, out_features, knob).values()))
        before = math.prod(leading) * columns
        (order,) = cls.orders(in_features, out_features, knob)
        return Waist(math.prod(leading), before, order.per_vector - before)

    @torch.no_grad()
    def project_inside_(self, kernel: Tensor) -> Tensor:
        """Bring the map with taps at its waist near to a kernel (out, in, taps); returns them, (width, taps).

        As it is here, the same taps for all: a start, which `Inside` descends from.
        """
        taps: Tensor = torch.linalg.eigh(kernel.flatten(0, 1).mT @ kernel.flatten(0, 1)).eigenvectors[:, -1]
        self.project_(kernel @ taps)
        width = self.waist(self.in_features, self.out_features, self.knob).width
        return taps.expand(width, -1).clone()
