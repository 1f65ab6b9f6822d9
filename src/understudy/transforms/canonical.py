"""K[o,i,a] ≈ Σ over r of u[o,r] v[r,i] t[r,a]: a kernel as a sum of terms, by alternating least squares.

A sweep costs 2·out·r·in·taps mult-adds. Each solution is pulled a little towards the one before it, so that
the error never rises and terms that nearly cancel each other do not grow without bound.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .numerics import truncated_svd

_SWEEPS = 60
_WORK = 3 * 10**10  # mult-adds of one decomposition: a few seconds of one core
_LEAST_SWEEPS = 6
_ENOUGH = 1e-4  # a sweep that gains a smaller share of the error is the last
_PULL = 1e-6  # of the mean diagonal of a system


def canonical(kernel: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """The factors (…, o, r), (…, r, i) and (…, r, a) of kernels (…, o, i, a), in float64.

    Terms have unit taps, and their other two factors equal norms. The rank is at most that of o × i·a.
    """
    kernel = kernel.double()
    u, v, t = _start(kernel, rank)
    flat, whole = kernel.flatten(-2), float(kernel.square().sum())
    sweeps = max(_LEAST_SWEEPS, min(_SWEEPS, _WORK // max(1, 2 * rank * kernel.numel())))
    error = math.inf
    for _ in range(sweeps):
        through = (u.mT @ flat).unflatten(-1, kernel.shape[-2:])  # (…, r, i, a)
        grams = u.mT @ u
        v = _solved(grams * (t @ t.mT), (through * t[..., None, :]).sum(-1), v)
        t = _solved(grams * (v @ v.mT), (through * v[..., None]).sum(-2), t)
        t, v = _unit(t, v)
        wanted = (v[..., None] * t[..., None, :]).flatten(-2) @ flat.mT  # (…, r, o)
        grams = (v @ v.mT) * (t @ t.mT)
        u = _solved(grams, wanted, u.mT).mT
        before, error = error, whole - float((2 * u.mT * wanted - u.mT * (grams @ u.mT)).sum())
        if before - error <= _ENOUGH * error or error <= 0:
            break
    size = ((u.norm(dim=-2) + _tiny(u)) / (v.norm(dim=-1) + _tiny(v))).sqrt()  # (…, r)
    return u / size[..., None, :], v * size[..., None], t


def split_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest v (…, i) and unit t (…, a) with v ⊗ t ≈ each (…, i, a)."""
    t = torch.linalg.eigh(rows.mT @ rows).eigenvectors[..., -1]  # the last is the leading one
    return (rows @ t[..., None])[..., 0], t


def _start(kernel: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest matrix out × in·taps of this rank, each of its rows cut to one term."""
    u, rows = truncated_svd(kernel.flatten(-2), rank)
    v, t = split_rows(rows.unflatten(-1, kernel.shape[-2:]))
    return u, v, t


def _unit(t: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Taps of unit norm, their size given to the other factor; taps of nothing stay."""
    size = t.norm(dim=-1, keepdim=True)
    size = torch.where(size > 0, size, torch.ones_like(size))
    return t / size, v * size


def _solved(system: Tensor, wanted: Tensor, before: Tensor) -> Tensor:
    """The solution of a symmetric system, pulled a little to the one before it."""
    mean = system.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    pull = _PULL * mean + _tiny(system)
    eye = torch.eye(system.shape[-1], dtype=system.dtype, device=system.device)
    solution: Tensor = torch.linalg.solve(system + pull * eye, wanted + pull * before)
    return solution


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
