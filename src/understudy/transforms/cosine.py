"""The orthonormal cosine transform by the fast Fourier transform, and the riffle shuffle."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def real_fft_mult_adds(n: int) -> int:
    """Operations of one FFT of n real numbers, 2.5 n log2 n: an upper bound, each counted as a mult-add."""
    return round(2.5 * n * math.log2(n)) if n > 1 else 0


def riffle(x: Tensor) -> Tensor:
    """Split the last axis into halves (the first is the longer one) and interleave them."""
    width = x.shape[-1]
    half = (width + 1) // 2
    second = F.pad(x[..., half:], (0, width % 2))
    return torch.stack((x[..., :half], second), dim=-1).flatten(-2)[..., :width]


def unriffle(x: Tensor) -> Tensor:
    """The inverse: what was dealt to the even places, then what was dealt to the odd ones."""
    return torch.cat((x[..., ::2], x[..., 1::2]), dim=-1)


def cosine_matrix(width: int, like: Tensor) -> Tensor:
    """The orthonormal DCT-II as a matrix, by arithmetic on a range: √(2/N) cos(π k (2n + 1) / 2N)."""
    place = torch.arange(width, device=like.device)
    turns = place[:, None] * (2 * place + 1) % (4 * width)  # whole turns are left out while numbers are whole
    first = (place == 0).to(like.dtype)  # a plain number beside a mask would be of single precision
    scale = math.sqrt(2 / width) + first * (math.sqrt(1 / width) - math.sqrt(2 / width))
    precise = torch.promote_types(like.dtype, torch.float32)
    return scale[:, None] * torch.cos(turns.to(precise) * (math.pi / (2 * width))).to(like.dtype)


class CosineTransform:
    """The orthonormal DCT-II of the last axis and its inverse, each by one real FFT of the same length."""

    def __init__(self, width: int, like: Tensor) -> None:
        self.width = width
        count = width // 2 + 1
        last = math.pi / 2 * (count - 1) / width
        angle = torch.linspace(0, last, count, dtype=torch.float64, device=like.device)
        scale = torch.full_like(angle, math.sqrt(2))
        scale[0] = 1
        cos, sin = angle.cos(), angle.sin()
        self.cos, self.sin = (cos * scale).to(like.dtype), (sin * scale).to(like.dtype)
        self.inverse_cos, self.inverse_sin = (cos / scale).to(like.dtype), (sin / scale).to(like.dtype)

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
        head, tail = x[..., :count], F.pad(x[..., self.width - count + 1 :].flip(-1), (1, 0))  # k, N − k
        real = head * self.inverse_cos + tail * self.inverse_sin
        imaginary = head * self.inverse_sin - tail * self.inverse_cos
        spectrum = torch.view_as_complex(torch.stack((real, imaginary), dim=-1))
        ordered = torch.fft.irfft(spectrum, n=self.width, norm="ortho")
        half = (self.width + 1) // 2
        return riffle(torch.cat((ordered[..., :half], ordered[..., half:].flip(-1)), dim=-1))
