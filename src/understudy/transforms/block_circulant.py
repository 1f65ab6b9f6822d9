"""Blocks of circulants through the FFT (Cheng et al. 2015, arXiv:1502.03436; CirCNN, arXiv:1708.08917)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .at_once import matrices_at_once
from .base import Shapes, Transform
from .cosine import real_fft_mult_adds
from .cycles import circulant, circulant_sums
from .orders import Order
from .stages import State, columns_by_rows, result_type

_SIZES: dict[tuple[int, int], tuple[int, ...]] = {}  # a plain memo: torch.compile traces through it


def block_sizes(in_features: int, out_features: int) -> tuple[int, ...]:
    """The sizes worth having, largest first: each has more parameters than those before it, and none idle.

    Blocks at the edge are cropped where a size does not divide; the one in the corner must still show all of
    its numbers.

    >>> block_sizes(13, 17)
    (17, 13, 9, 7, 1)
    """
    shape = (in_features, out_features)
    if shape not in _SIZES:
        sizes, fewest = [], in_features * out_features + 1
        for size in range(1, max(shape) + 1):
            columns, rows = -(-in_features // size), -(-out_features // size)
            corner = in_features - (columns - 1) * size + out_features - (rows - 1) * size - 1
            if corner >= size and rows * columns * size < fewest:
                fewest = rows * columns * size
                sizes.append(size)
        _SIZES[shape] = tuple(reversed(sizes))
    return _SIZES[shape]


class BlockCirculant(Transform):
    """W[(p,i),(q,j)] = c[p,q,(i − j) mod b]: circulant blocks of b × b; the largest is one circulant.

    Cost: ⌈in/b⌉·⌈out/b⌉·b parameters; 2.5 (in + out) log2 b + 2·in·out/b mult-adds a vector through the FFT.
    """

    name = "block_circulant"
    knob_name = "block"
    is_for_auto = False  # on trained matrices others lose less
    mult_adds_rise = False  # a large block has few parameters and a long transform
    keeps_much = True  # spectra of the input and the output
    c: nn.Parameter  # (p, q, b)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """The sizes of a block, largest (cheapest) first."""
        return block_sizes(in_features, out_features)

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """The smallest block that has no more than `scale` of the entries as parameters."""
        legal, most = cls.knobs(in_features, out_features), scale * in_features * out_features
        within = (size for size in reversed(legal) if cls.params(in_features, out_features, size) <= most)
        return next(within, legal[0])

    @classmethod
    def nearest_knob(cls, in_features: int, out_features: int, knob: int) -> int:
        """The legal size nearest to `knob`; of two as near, the one with fewer parameters."""
        if isinstance(knob, bool) or not isinstance(knob, int) or knob < 1:
            raise ValueError(f"block {knob!r} is not a whole number of at least 1")
        return min(cls.knobs(in_features, out_features), key=lambda size: abs(size - knob))

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The first column of every block."""
        return {"c": (-(-out_features // knob), -(-in_features // knob), knob)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Transforms of all blocks, a complex matrix (4 mult-adds an entry) at every frequency, and back."""
        p, q, b = cls.shapes(in_features, out_features, knob)["c"]
        fft = real_fft_mult_adds(b)
        return (Order("fft", p * q * fft, (p + q) * fft + 4 * p * q * (b // 2 + 1)),)

    @classmethod
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:  # noqa: ARG003
        """A parameter stands in the matrix itself."""
        return {"c": in_features}

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """Its entries are parameters: they are only moved."""
        return 0

    def stages(self, order: str) -> State:  # noqa: ARG002
        """One stage: the spectra have no plain matrix."""
        dtype = torch.promote_types(self.c.dtype, torch.float32)  # there is no FFT in half precision
        spectra = torch.fft.rfft(self.c.to(dtype)).permute(2, 1, 0)
        return (_Spectra(spectra, self.c.shape[2], self.out_features),)

    def matrix(self) -> Tensor:
        """The blocks side by side, cropped."""
        p, q, b = self.c.shape
        whole = circulant(self.c).transpose(1, 2).reshape(p * b, q * b)
        return whole[: self.out_features, : self.in_features]

    @classmethod
    def matrices(cls, alike: Sequence[Transform]) -> Tensor:
        """All at once."""
        return matrices_at_once(alike)

    def entry_std(self, std: float) -> float:
        """Every entry of W is a parameter."""
        return std

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The mean over each wrapped diagonal of each block: least squares."""
        sums = self._sums(matrix.double())
        self.c.copy_(sums / self._sums(torch.ones_like(matrix, dtype=torch.float64)))

    def _sums(self, matrix: Tensor) -> Tensor:
        p, q, b = self.c.shape
        whole = F.pad(matrix, (0, q * b - self.in_features, 0, p * b - self.out_features))
        return circulant_sums(whole.reshape(p, b, q, b).transpose(1, 2))


class _Spectra(NamedTuple):
    """Cut into blocks, transform, multiply at every frequency, transform back, crop."""

    weight: Tensor  # (frequencies, q, p), complex
    block: int
    out_features: int

    def rows(self, x: Tensor) -> Tensor:
        """On the last axis, in the precision of the weight."""
        columns = self.weight.shape[1]
        padded = F.pad(x.to(self.weight.real.dtype), (0, columns * self.block - x.shape[-1]))
        spectra = torch.fft.rfft(padded.reshape(-1, columns, self.block)).permute(2, 0, 1)
        made = torch.bmm(spectra, self.weight).permute(1, 2, 0)  # (n, p, frequencies)
        y: Tensor = torch.fft.irfft(made, n=self.block)  # (n, p, b)
        return y.flatten(1)[:, : self.out_features].to(result_type(x))

    def columns(self, x: Tensor) -> Tensor:
        """The transforms run along the last axis, so the channels are put there."""
        return columns_by_rows(self, x)
