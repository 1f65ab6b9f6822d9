"""ACDC: diagonals between cosine transforms, through the fast Fourier transform."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base import Shapes, Transform, clamp_knob


class Acdc(Transform):
    """W = Π over L layers of A C D C⁻¹ P: diagonals A and D, orthonormal DCT C, riffle shuffle P.

    Cost: 2·N·L parameters, near L·(6N + 5N log2 N) mult-adds a vector; N = max(in, out), padded and cropped.
    """

    name = "acdc"
    knob_name = "layers"
    a: nn.Parameter  # (L, N)
    d: nn.Parameter  # (L, N)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Up to as many parameters as the matrix has entries."""
        return range(1, max(1, min(in_features, out_features) // 2) + 1)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """Proportional to the most layers."""
        legal = cls.knobs(in_features, out_features)
        return clamp_knob(scale * legal[-1], legal)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """Two diagonals a layer."""
        width = max(in_features, out_features)
        return {"a": (knob, width), "d": (knob, width)}

    @classmethod
    def mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int = 1) -> int:
        """A layer: two real FFTs, two twiddles of N/2 + 1 complex numbers, two diagonals."""
        width = max(in_features, out_features)
        twiddle = 4 * (width // 2 + 1)
        return positions * knob * 2 * (real_fft_mult_adds(width) + twiddle + width) + twiddle

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """The identity sent through all layers."""
        return cls.mult_adds(in_features, out_features, knob, positions=in_features)

    def structured(self, x: Tensor) -> Tensor:
        """Pad to N, run the layers, crop to out."""
        width = self.a.shape[1]
        dtype = torch.promote_types(x.dtype, torch.float32)  # there is no FFT in half precision
        y = F.pad(x.to(dtype), (0, width - self.in_features))
        cosine = CosineTransform(width, y)
        for a, d in zip(
            self.a.flip(0).to(dtype), self.d.flip(0).to(dtype), strict=True
        ):  # the product's last acts first
            y = a * cosine.forward(d * cosine.inverse(riffle(y)))
        return y[..., : self.out_features].to(x.dtype)

    def matrix(self) -> Tensor:
        """The images of the unit vectors."""
        return self.structured(torch.eye(self.in_features, device=self.a.device, dtype=self.a.dtype)).T

    def entry_std(self, std: float) -> float:
        """Signs alone make W orthogonal, with mean square 1/N; all 2L diagonals share the scale."""
        return float((std * self.a.shape[1] ** 0.5) ** (1 / (2 * self.knob)))

    def sample(self, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
        """Random signs: an orthogonal matrix at any depth."""
        return (2 * torch.randint(0, 2, shape, generator=generator) - 1) * self.entry_std(std)

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """Least squares, one diagonal at a time, from the present parameters: the error never rises.

        W is linear in each diagonal when the others are held, W = L diag(v) R, so the best v solves
        (LᵀL ∘ RRᵀ) v = diag(Lᵀ W Rᵀ). There is no closed form for all diagonals at once, and a solution costs
        about 4N³: wide or deep maps get one pass over as many diagonals as `_PROJECTION_WORK` pays for.
        """
        target = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
        width = self.a.shape[1]
        eye = torch.eye(width, dtype=target.dtype, device=target.device)
        dct = CosineTransform(width, eye).forward(eye).T  # C
        enter = dct.T @ riffle(eye).T  # C⁻¹ P
        diagonals = torch.stack((self.a, self.d), dim=1).reshape(-1, width).to(target)  # A1, D1, A2, D2, …
        affordable = max(2, _PROJECTION_WORK // (4 * width**3))
        visited = min(len(diagonals), affordable)
        for _ in range(max(1, min(_PROJECTION_SWEEPS, affordable // len(diagonals)))):
            right = [
                eye[:, : self.in_features]
            ]  # what stands right of each visited diagonal, innermost first
            for k in range(len(diagonals) - 1, -1, -1):
                product = (enter if k % 2 else dct) @ right[-1]
                right = [*(right[:-1] if k < visited else []), product, diagonals[k, :, None] * product]
            left = eye[: self.out_features]
            for k in range(visited):
                r = right[visited - 1 - k]
                gram = (left.T @ left) * (r @ r.T)
                wanted = ((left.T @ target) * r).sum(1)
                diagonals[k] = _better_fit(gram, wanted, diagonals[k])
                left = (left * diagonals[k]) @ (enter if k % 2 else dct)
        a, d = diagonals.reshape(-1, 2, width).unbind(1)
        self.a.copy_(a)
        self.d.copy_(d)


_PROJECTION_WORK = 2 * 10**10
_PROJECTION_SWEEPS = 8


def _better_fit(gram: Tensor, wanted: Tensor, present: Tensor) -> Tensor:
    """The v that minimises v·Gv − 2 v·w, or the present one where rounding makes the solution worse."""
    ridge = torch.finfo(gram.dtype).eps * gram.diagonal().mean()
    best = torch.linalg.solve(gram + ridge * torch.eye(len(wanted)).to(gram), wanted)

    def loss(v: Tensor) -> float:
        return float(v @ (gram @ v) - 2 * (v @ wanted))

    return best if loss(best) < loss(present) else present


def real_fft_mult_adds(n: int) -> int:
    """Operations of one FFT of n real numbers, 2.5 n log2 n: an upper bound, each counted as a mult-add."""
    return round(2.5 * n * math.log2(n)) if n > 1 else 0


def riffle(x: Tensor) -> Tensor:
    """Split the last axis into halves (the first is the longer one) and interleave them."""
    width = x.shape[-1]
    half = (width + 1) // 2
    second = F.pad(x[..., half:], (0, width % 2))
    return torch.stack((x[..., :half], second), dim=-1).flatten(-2)[..., :width]


class CosineTransform:
    """The orthonormal DCT-II of the last axis and its inverse, each by one real FFT of the same length."""

    def __init__(self, width: int, like: Tensor) -> None:
        self.width = width
        count = width // 2 + 1
        angle = torch.linspace(
            0, math.pi / 2 * (count - 1) / width, count, dtype=torch.float64, device=like.device
        )
        scale = torch.full_like(angle, math.sqrt(2))
        scale[0] = 1
        self.cos, self.sin = (angle.cos() * scale).to(like.dtype), (angle.sin() * scale).to(like.dtype)
        self.inverse_cos, self.inverse_sin = (
            (angle.cos() / scale).to(like.dtype),
            (angle.sin() / scale).to(like.dtype),
        )

    def forward(self, x: Tensor) -> Tensor:
        """C x."""
        evens, odds = x[..., ::2], x[..., 1::2]
        spectrum = torch.fft.rfft(torch.cat((evens, odds.flip(-1)), dim=-1), norm="ortho")
        real, imaginary = torch.view_as_real(spectrum).unbind(-1)
        head = real * self.cos + imaginary * self.sin  # k = 0 … N/2
        tail = real * self.sin - imaginary * self.cos  # N − k
        return torch.cat((head, tail[..., 1 : (self.width + 1) // 2].flip(-1)), dim=-1)

    def inverse(self, x: Tensor) -> Tensor:
        """C⁻¹ x."""
        count = self.width // 2 + 1
        head = x[..., :count]
        tail = (
            F.pad(x[..., -(count - 1) :].flip(-1), (1, 0)) if count > 1 else torch.zeros_like(head)
        )  # x[N − k]
        real = head * self.inverse_cos + tail * self.inverse_sin
        imaginary = head * self.inverse_sin - tail * self.inverse_cos
        spectrum = torch.view_as_complex(torch.stack((real, imaginary), dim=-1))
        ordered = torch.fft.irfft(spectrum, n=self.width, norm="ortho")
        half = (self.width + 1) // 2
        return torch.stack(
            (ordered[..., :half], F.pad(ordered[..., half:].flip(-1), (0, self.width % 2))), dim=-1
        ).flatten(-2)[..., : self.width]
