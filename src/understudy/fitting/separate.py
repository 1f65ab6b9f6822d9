"""A k×k kernel as a depthwise and a pointwise one, in the metric of what the layer sees.

W[o, (c, a)] ≈ P[o, c] T[c, a]. With T held the best P is (W Σ Kᵀ)(K Σ Kᵀ)⁻¹, K the taps as a matrix
in × in·area; with P held the best T solves ((PᵀGP) ⊙ Σ) t = diag(PᵀG W Σ), each channel with its own rows.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from understudy.students.substitute import separate
from understudy.transforms.metric import Metric

_ROUNDS = 2
_RIDGE = 1e-9  # of the mean eigenvalue
_MOST_TAPS = 2500  # in·area: a larger system for the taps is not solved, they keep their plain fit


@dataclasses.dataclass(frozen=True)
class Separated:
    """The two kernels, what they lose, and the metric in which an error of the pointwise one adds to that."""

    pointwise: Tensor  # P, (out, in)
    taps: Tensor  # T, (in, area)
    loss: float
    metric: Metric


def separated(matrix: Tensor, kernel: tuple[int, ...], metric: Metric) -> Separated:
    """The best separable kernel of a matrix (out, in·area); each round lowers the loss."""
    pointwise, depthwise = separate(matrix.reshape(len(matrix), -1, *kernel))
    taps = depthwise.flatten(1)
    for left in reversed(range(_ROUNDS)):
        through = _through(metric, taps)
        pointwise = torch.linalg.solve(through.covariance, _spread(matrix @ metric.covariance, taps).T).T
        if left and taps.numel() <= _MOST_TAPS:
            taps = _best_taps(matrix, pointwise, metric)
    made = (pointwise[:, :, None] * taps).flatten(1)
    return Separated(pointwise, taps, float(metric.loss(made - matrix)), through)


def _through(metric: Metric, taps: Tensor) -> Metric:
    """The metric of a depthwise convolution's outputs: K Σ Kᵀ."""
    channels, area = taps.shape
    grid = metric.covariance.reshape(channels, area, channels, area)
    covariance = torch.einsum("ca,cadb,db->cd", taps, grid, taps)
    return dataclasses.replace(Metric.of(covariance, ridge=_RIDGE), gradient=metric.gradient)


def _spread(weighed: Tensor, taps: Tensor) -> Tensor:
    """(out, in·area) times Kᵀ."""
    return (weighed.reshape(len(weighed), *taps.shape) * taps).sum(2)


def _best_taps(matrix: Tensor, pointwise: Tensor, metric: Metric) -> Tensor:
    channels = pointwise.shape[1]
    area = matrix.shape[1] // channels
    worth = pointwise.T if metric.gradient is None else pointwise.T @ metric.gradient  # PᵀG
    gram = (worth @ pointwise).repeat_interleave(area, 0).repeat_interleave(area, 1) * metric.covariance
    wanted = (worth @ matrix @ metric.covariance).reshape(channels, channels, area)
    wanted = wanted.diagonal(dim1=0, dim2=1).T.flatten()
    ridge = _RIDGE * gram.diagonal().mean()
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    found: Tensor = torch.linalg.solve(gram + ridge * eye, wanted)
    return found.reshape(channels, area)
