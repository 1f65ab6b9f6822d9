"""Blocks with shared factors and a diagonal between them (BLAST: Lee et al. 2024, arXiv:2410.21262)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import Shapes
from .numerics import balance_, block_counts, truncated_svd
from .orders import Order
from .stages import Blocks, Permute, Product, State
from .two_factors import TwoFactors

_SWEEPS = 60
_ENOUGH = 1e-4  # a sweep that gains a smaller share of the error is the last
_RIDGE = 1e-10  # of the mean diagonal of a system: factors may be dependent
_PARTS = 2  # blocks so large that the diagonals, p·q·r, have about a quarter of the factors' parameters


class Blast(TwoFactors):
    """W[p,q] = U[p] diag(s[p,q]) V[q]: block (p, q), with the factors of its row and its column of blocks.

    Cost: r (in + out + p·q) parameters and as many mult-adds a vector.
    """

    name = "blast"
    knob_name = "rank"
    has_rank = True
    is_for_auto = False  # on trained matrices others lose less
    descends = True
    keeps_much = True  # the vectors between the factors
    v: nn.Parameter  # (q, r, in/q)
    s: nn.Parameter  # (r, p, q)
    u: nn.Parameter  # (p, out/p, r)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Up to the rank that holds every matrix with all diagonals alike."""
        return range(1, min(in_features, out_features) + 1)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The factors of the columns, the diagonals, the factors of the rows."""
        q, p = block_counts(in_features, out_features, _PARTS)
        return {"v": (q, knob, in_features // q), "s": (knob, p, q), "u": (p, out_features // p, knob)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Three grouped products: blocks of the input, a small matrix for each of r, blocks of the output."""
        q, p = block_counts(in_features, out_features, _PARTS)
        return (Order("V,S,U", 0, knob * (in_features + out_features + p * q), whole=q == 1),)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """The diagonals times V, then a product of rank r for every block."""
        p = block_counts(in_features, out_features, _PARTS)[1]
        return knob * in_features * (p + out_features)

    def stages(self, order: str) -> State:  # noqa: ARG002
        """V, then r side by side, S, then the blocks of the output side by side, U."""
        q, r, _ = self.v.shape
        first = Product(self.v[0]) if q == 1 else Blocks(self.v)
        across = (Permute((q, r), (1, 0)), Blocks(self.s), Permute((r, len(self.u)), (1, 0)))
        return first, *across, Blocks(self.u)

    def matrix(self) -> Tensor:
        """All blocks, put in their places."""
        scaled = self.s.permute(1, 2, 0)[..., None] * self.v  # (p, q, r, in/q)
        return _joined(self.u[:, None] @ scaled)

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of r products of three entries."""
        return float((std**2 / self.knob) ** (1 / 6))

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """From the nearest matrix of rank r, or the present one where it is nearer, least squares in turn."""
        target = matrix.double()
        present = float((self.matrix() - target).norm())
        left, right = truncated_svd(target, min(self.knob, *matrix.shape))
        q, p = len(self.v), len(self.u)
        v = right.reshape(-1, q, self.v.shape[2]).transpose(0, 1).clone()
        u, s = left.reshape(p, -1, self.knob), target.new_ones(self.s.shape).permute(1, 2, 0)
        if not float((left @ right - target).norm()) < present:
            v, u, s = self.v.double(), self.u.double(), self.s.double().permute(1, 2, 0)
        v, u, s = _descended(target, v, u, s)
        for parameter, value in ((self.v, v), (self.u, u), (self.s, s.permute(2, 0, 1))):
            parameter.copy_(value)
        balance_(self.v, self.s, self.u)


def _joined(blocks: Tensor) -> Tensor:
    """(p, q, rows, columns) as one matrix."""
    p, q, rows, columns = blocks.shape
    return blocks.transpose(1, 2).reshape(p * rows, q * columns)


def _descended(target: Tensor, v: Tensor, u: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each of V, U and S, (q, r, i), (p, j, r) and (p, q, r), made best in turn while the error falls."""
    blocks = target.reshape(len(u), u.shape[1], len(v), -1).transpose(1, 2)  # (p, q, j, i)
    best, error = (v, u, s), _error(blocks, v, u, s)
    for _ in range(_SWEEPS):
        scaled = s[..., None] * v  # (p, q, r, i)
        u = _solved((scaled @ scaled.mT).sum(1), torch.einsum("pqri,pqji->prj", scaled, blocks)).mT
        scaled = u[:, None] * s[:, :, None]  # (p, q, j, r)
        v = _solved((scaled.mT @ scaled).sum(0), torch.einsum("pqjr,pqji->qri", scaled, blocks))
        grams = (u.mT @ u)[:, None] * (v @ v.mT)  # (p, q, r, r)
        s = _solved(grams, torch.einsum("pjr,pqji,qri->pqr", u, blocks, v)[..., None])[..., 0]
        before, now = error, _error(blocks, v, u, s)
        if now < error:
            best, error = (v, u, s), now
        if before - now <= _ENOUGH * before:
            break
    return best


def _error(blocks: Tensor, v: Tensor, u: Tensor, s: Tensor) -> float:
    return float((u[:, None] @ (s[..., None] * v) - blocks).norm())


def _solved(system: Tensor, wanted: Tensor) -> Tensor:
    """The solutions of symmetric systems, a little of the mean diagonal added to each."""
    mean = system.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=torch.finfo(system.dtype).tiny)
    eye = torch.eye(system.shape[-1], dtype=system.dtype, device=system.device)
    solution: Tensor = torch.linalg.solve(system + _RIDGE * mean[..., None, None] * eye, wanted)
    return solution
