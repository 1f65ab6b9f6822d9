"""W[o,(i,a)] = second · diag(taps[:,a]) · first: a map with taps at its waist, as the matrix of a k×k kernel.

Parameters: those of the map, and width·taps. With the first factor first'[w,(i,a)] = first[w,i] taps[w,a],
which reads patches, it is the family's own matrix. It is linear in each of its parameters alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .metric import Metric
from .refine import ROUGH, Formed, making, refine_
from .two_factors import TwoFactors


class Inside(nn.Module):
    """A map of two factors with taps (width, area) between them; the map itself is held, not copied."""

    def __init__(self, transform: TwoFactors, taps: Tensor) -> None:
        super().__init__()
        self.transform = transform
        self.taps = nn.Parameter(taps.detach().clone())

    def matrix(self) -> Tensor:
        """W, (out, in·area)."""
        return inside_matrix(self.transform, self.taps)

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """Bring W near to a matrix (out, in·area)."""
        kernel = matrix.unflatten(1, (self.transform.in_features, -1))
        self.taps.copy_(self.transform.project_inside_(kernel))
        if not self.transform.is_closed_inside:
            refine_(self, self.matrix, matrix, None)

    @torch.no_grad()
    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        """The same in a metric of the data, never worse there than the plain fit."""
        self.project_(matrix)
        if metric is not None:
            refine_(self, self.matrix, matrix, metric)


def inside_matrix(transform: TwoFactors, taps: Tensor) -> Tensor:
    """W, (out, in·area), of a map and its taps; gradients flow through it."""
    name = transform.first_factor(transform.in_features, transform.out_features, transform.knob)
    first: Tensor = getattr(transform, name)  # in a fit it is no parameter, but a value in its place
    across = taps.reshape(*first.shape[:-1], 1, taps.shape[-1])
    wide = (first[..., None] * across).flatten(-2)  # reads patches: (…, channels · area)
    formed: Tensor = functional_call(Formed(transform, transform.matrix), {f"transform.{name}": wide}, ())
    return formed


def inside_losses(
    transform: type[TwoFactors],
    matrix: Tensor,
    area: int,
    metric: Metric,
    knobs: Sequence[int],
    **options: Any,
) -> list[float]:
    """What a fit at each of these knobs loses in the metric, with less effort than `fit_` makes."""
    out_features, in_features = matrix.shape[0], matrix.shape[1] // area
    losses = []
    for knob in knobs:
        made = transform(in_features, out_features, knob, dtype=torch.float64, **options)
        width = transform.waist(in_features, out_features, knob).width
        inside = Inside(made, matrix.new_zeros(width, area))
        with making(ROUGH):
            inside.fit_(matrix, metric)
        losses.append(float(metric.loss(inside.matrix().detach() - matrix)))
    return losses
