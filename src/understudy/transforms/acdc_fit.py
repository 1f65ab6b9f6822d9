"""The least-squares fit of ACDC's diagonals to a matrix, in bounded work and never worse than its start.

W is linear in each diagonal when the others are held, W = L diag(v) R, so the best v solves
(LᵀL ∘ RRᵀ) v = diag(Lᵀ W Rᵀ), or in a metric (LᵀGL ∘ RΣRᵀ) v = diag(LᵀG W ΣRᵀ). There is no closed form for
all diagonals at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .cosine import CosineTransform, riffle, unriffle
from .metric import Metric

WORK = 2 * 10**10  # mult-adds of matrix products, about a second of one core
_SWEEPS = 8
_ENTRIES_OF_LAYERS = 3 * 10**7  # entries sent through a layer, about as long
_CHUNK = 64  # rows that stay in a core's cache on their way


def fit_in(metric: Metric, target: Tensor, diagonals: Tensor, work: int = WORK) -> Tensor:
    """Better diagonals in a metric: as many passes as `work` pays for, or else the outermost one alone."""
    count, width = diagonals.shape
    passes = passes_in(width, count, work)
    for _ in range(passes):
        diagonals = _pass(target, diagonals, count, metric)
    return diagonals if passes else _fit_outermost(metric, target, diagonals)


def passes_in(width: int, count: int, work: int) -> int:
    """How many passes over so many diagonals of a width `work` pays for, in a metric."""
    return min(_SWEEPS, work // (6 * count * width**3))


def fit(target: Tensor, diagonals: Tensor) -> Tensor:
    """Better diagonals A1, D1, A2, D2, …, (2L, N), for a target (out, in).

    Solving for one diagonal costs about 4N³. A map that is small gets up to eight passes over all of them, a
    wider one a single pass over the outermost ones that `WORK` pays for. Where even the product of all the
    others would cost more, only the outermost is fitted, row by row: each of its entries scales one row.
    """
    count, width = diagonals.shape
    affordable = WORK // (4 * width**3)
    if affordable >= count:
        for _ in range(min(_SWEEPS, affordable // count)):
            diagonals = _pass(target, diagonals, count)
        return diagonals
    if affordable >= 2 and count * width**2 * target.shape[1] <= WORK:
        return _pass(target, diagonals, affordable)
    return _fit_rows(target, diagonals)


def _pass(target: Tensor, diagonals: Tensor, visited: int, metric: Metric | None = None) -> Tensor:
    """Least squares for the first `visited` diagonals, one at a time."""
    diagonals = diagonals.clone()
    out_features, in_features = target.shape
    count, width = diagonals.shape
    eye = torch.eye(width, dtype=target.dtype, device=target.device)
    dct = CosineTransform(width, eye).forward(eye).T  # C
    after = (dct, dct.T @ riffle(eye).T)  # what follows an A, and a D: C, and C⁻¹ P
    rights: dict[int, Tensor] = {}  # everything right of each diagonal to be visited
    right = eye[:, :in_features]
    for k in reversed(range(count)):
        right = after[k % 2] @ right
        if k < visited:
            rights[k] = right
        right = diagonals[k, :, None] * right
    left = eye[:out_features]  # everything left of diagonal k
    worth = None if metric is None or metric.gradient is None else metric.gradient.to(target)
    seen = None if metric is None else metric.covariance.to(target)
    weighed = target if seen is None else target @ seen  # W Σ
    for k in range(visited):
        right = rights[k]
        back = left.T if worth is None else left.T @ worth  # Lᵀ G
        gram = (back @ left) * ((right if seen is None else right @ seen) @ right.T)
        wanted = ((back @ weighed) * right).sum(1)
        diagonals[k] = _better_fit(gram, wanted, diagonals[k])
        left = (left * diagonals[k]) @ after[k % 2]
    return diagonals


def _fit_outermost(metric: Metric, target: Tensor, diagonals: Tensor) -> Tensor:
    """The best scale of every row in a metric: so no row is worse than nothing, however wide the map is."""
    diagonals = diagonals.clone()
    out_features, in_features = target.shape
    chunks = torch.arange(out_features, device=target.device).split(_CHUNK)
    cosine = CosineTransform(diagonals.shape[1], diagonals)
    rows = torch.cat([rows_before_scale(cosine, diagonals, chunk) for chunk in chunks])[:, :in_features]
    seen = rows @ metric.covariance.to(target)
    worth = torch.eye(out_features).to(target) if metric.gradient is None else metric.gradient.to(target)
    wanted = (worth * (seen @ target.T)).sum(1)  # diag(G W Σ Yᵀ)
    diagonals[0, :out_features] = _better_fit(worth * (seen @ rows.T), wanted, diagonals[0, :out_features])
    return diagonals


def _fit_rows(target: Tensor, diagonals: Tensor) -> Tensor:
    """The best scale for as many rows as can be paid for; the other rows stay as they are."""
    diagonals = diagonals.clone()
    out_features, in_features = target.shape
    count, width = diagonals.shape
    cosine = CosineTransform(width, diagonals)
    rows = min(out_features, max(1, _ENTRIES_OF_LAYERS // (width * (count // 2))))
    for chunk in torch.arange(rows, device=target.device).split(_CHUNK):
        y = rows_before_scale(cosine, diagonals, chunk)[:, :in_features]
        square = y.square().sum(1)
        best = (y * target[chunk]).sum(1) / square
        diagonals[0, chunk] = torch.where(square > 0, best, diagonals[0, chunk])
    return diagonals


def rows_before_scale(cosine: CosineTransform, diagonals: Tensor, chunk: Tensor) -> Tensor:
    """These rows of all that the outermost diagonal scales."""
    count, width = diagonals.shape
    y = (chunk[:, None] == torch.arange(width, device=chunk.device)).to(diagonals.dtype)
    for k in range(1, count, 2):
        y = unriffle(cosine.forward(diagonals[k] * cosine.inverse(y)))  # Pᵀ C D C⁻¹, the transpose
        y = y if k + 1 == count else diagonals[k + 1] * y
    return y


def _better_fit(gram: Tensor, wanted: Tensor, present: Tensor) -> Tensor:
    """The v that minimises v·Gv − 2 v·w, or the present one where rounding makes the solution worse."""
    limits = torch.finfo(gram.dtype)
    ridge = limits.eps * gram.diagonal().mean() + limits.tiny  # a diagonal may have no effect at all
    best = torch.linalg.solve(gram + ridge * torch.eye(len(wanted)).to(gram), wanted)

    def loss(v: Tensor) -> float:
        return float(v @ (gram @ v) - 2 * (v @ wanted))

    return best if loss(best) < loss(present) else present
