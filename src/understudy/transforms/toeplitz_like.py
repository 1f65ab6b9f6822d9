"""Toeplitz-like: sums of circulant times skew-circulant (Sindhwani et al. 2015, arXiv:1510.01722)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .at_once import matrices_at_once
from .base import Shapes, Transform
from .cosine import real_fft_mult_adds
from .cycles import undisplaced
from .numerics import truncated_svd
from .orders import Order
from .refine import refine_
from .stages import State, columns_by_rows, result_type


def padded_width(in_features: int, out_features: int) -> int:
    """N, the larger of the two, made even: a skew-circulant then costs no more than a circulant."""
    return max(in_features, out_features) + max(in_features, out_features) % 2


class ToeplitzLike(Transform):
    """W = Σ over r of C(g_r) S(h_r), circulant times skew-circulant, N × N: displacement rank r.

    Cost: 2·N·r parameters, near (r + 1)·(5N log2 N) mult-adds a vector; N = max(in, out), padded and cropped.

    These are all matrices for which Z₁ W − W Z₋₁ has rank r, Z being shifts that wrap around with a sign:
    Toeplitz matrices and their inverses among them, with r = 2.
    """

    name = "toeplitz_like"
    knob_name = "rank"
    is_for_auto = False  # on trained matrices others lose less
    keeps_much = True  # the vectors between the two
    descends = True
    g: nn.Parameter  # (r, N)
    h: nn.Parameter  # (r, N)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Up to as many parameters as the matrix has entries."""
        return range(1, max(1, min(in_features, out_features) // 2) + 1)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The first columns of both."""
        width = padded_width(in_features, out_features)
        return {"g": (knob, width), "h": (knob, width)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """One transform in and one out, two for each term between them; products of complex numbers are 4."""
        width = padded_width(in_features, out_features)
        half = width // 2
        skew, plain = 2 * real_fft_mult_adds(half) + 4 * half, real_fft_mult_adds(width)
        between = 4 * half + skew + plain + 4 * (half + 1)
        return (Order("fft", knob * (skew + plain), skew + knob * between + plain),)

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Half the displacement, N × N of rank r; summed along its wrapped diagonals it gives W."""
        return knob * padded_width(in_features, out_features) ** 2

    def stages(self, order: str) -> State:  # noqa: ARG002
        """One stage: the spectra have no plain matrix."""
        dtype = torch.promote_types(self.g.dtype, torch.float32)  # there is no FFT in half precision
        twist = _twist(self.g.shape[1], self.g.to(dtype))
        skew = torch.fft.fft(_paired(self.h.to(dtype)) * twist)
        return (_Terms(skew, torch.fft.rfft(self.g.to(dtype)), twist, self.out_features),)

    def matrix(self) -> Tensor:
        """W from half its displacement, g (J h)ᵀ."""
        dtype = torch.promote_types(self.g.dtype, torch.float32)
        left, right = self.g.to(dtype).T, self.h.to(dtype).flip(-1)
        return undisplaced(left, right, self.out_features, self.in_features).to(self.g.dtype)

    @classmethod
    def matrices(cls, alike: Sequence[Transform]) -> Tensor:
        """All at once."""
        return matrices_at_once(alike)

    def entry_std(self, std: float) -> float:
        """An entry of W is a sum of r·N products of two entries."""
        return float((std**2 / self.g.numel()) ** 0.25)

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The nearest displacement of rank r, or the present parameters where they are nearer; then descent.

        The displacement is 2 Σ g_r (J h_r)ᵀ, J reversing; where the matrix is square and of the family it has
        rank r, so that this finds it.
        """
        target = matrix.double()
        found = [parameter.detach().clone() for parameter in self.parameters()]
        present = self._distance(target)
        self._start_(target)
        if not self._distance(target) < present:
            for parameter, value in zip(self.parameters(), found, strict=True):
                parameter.copy_(value)
        refine_(self, self.matrix, target, None)

    def _distance(self, target: Tensor) -> float:
        return float((self.matrix() - target).norm())

    def _start_(self, target: Tensor) -> None:
        """Set the parameters by the displacement, cut to rank r."""
        width = self.g.shape[1]
        whole = F.pad(target, (0, width - self.in_features, 0, width - self.out_features))
        wrapped = torch.cat((whole[:, 1:], -whole[:, :1]), dim=1)  # M Z₋₁
        left, right = truncated_svd((whole.roll(1, 0) - wrapped) / 2, self.knob)
        self.g.copy_(left.T)
        self.h.copy_(right.flip(-1))


def _twist(width: int, like: Tensor) -> Tensor:
    """ω^k with ω = exp(iπ/N) for k < N/2: it turns a product modulo x^(N/2) = i into a cyclic one."""
    half = width // 2
    angle = torch.linspace(0, math.pi * (half - 1) / width, half, dtype=like.dtype, device=like.device)
    return torch.polar(torch.ones_like(angle), angle)


def _paired(x: Tensor) -> Tensor:
    """Real numbers modulo x^N = −1 as complex ones modulo x^(N/2) = i: the halves of the last axis."""
    half = x.shape[-1] // 2
    return torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous())


class _Terms(NamedTuple):
    """Pad, all skew-circulants, all circulants, their sum, crop."""

    skew: Tensor  # (r, N/2), complex
    plain: Tensor  # (r, N/2 + 1), complex
    twist: Tensor  # (N/2,), complex
    out_features: int

    def rows(self, x: Tensor) -> Tensor:
        """On the last axis, in the precision of the spectra."""
        width = 2 * len(self.twist)
        dtype = self.twist.real.dtype
        spectrum = torch.fft.fft(_paired(F.pad(x.to(dtype), (0, width - x.shape[-1]))) * self.twist)
        turned = torch.fft.ifft(spectrum[:, None] * self.skew) * self.twist.conj()  # (n, r, N/2)
        between = torch.cat((turned.real, turned.imag), dim=-1)  # (n, r, N)
        y: Tensor = torch.fft.irfft((torch.fft.rfft(between) * self.plain).sum(1), n=width)
        return y[:, : self.out_features].to(result_type(x))

    def columns(self, x: Tensor) -> Tensor:
        """The transforms run along the last axis, so the channels are put there."""
        return columns_by_rows(self, x)
