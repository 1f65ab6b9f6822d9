"""ACDC: diagonals between cosine transforms, through the fast Fourier transform."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .acdc_fit import WORK, fit, fit_in, passes_in, rows_before_scale
from .at_once import matrices_at_once
from .base import Shapes, Transform
from .cosine import CosineTransform, cosine_matrix, real_fft_mult_adds, riffle, unriffle
from .metric import Metric
from .orders import Order
from .stages import State, result_type

_AT_ONCE = 1 << 24  # entries of the matrices that a graph holds, or of rows on their way, 64 MB


class Acdc(Transform):
    """W = Π over L layers of A C D C⁻¹ P: diagonals A and D, orthonormal DCT C, riffle shuffle P.

    Cost: 2·N·L parameters, near L·(6N + 5N log2 N) mult-adds a vector; N = max(in, out), padded and cropped.

    Where out < in, the outermost A has only the `out` entries that are not cropped: in − out parameters less.
    """

    name = "acdc"
    knob_name = "layers"
    descends = True
    keeps_much = True  # the vectors on both sides of every diagonal
    is_for_auto = False  # its fit is the slowest of all, and on trained matrices the worst
    a: nn.Parameter  # (out + (L − 1)·N,): the outermost A, then the others
    d: nn.Parameter  # (L, N)

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Up to as many parameters as the matrix has entries."""
        return range(1, max(1, min(in_features, out_features) // 2) + 1)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """Two diagonals a layer, the outermost one cropped."""
        width = max(in_features, out_features)
        return {"a": (out_features + (knob - 1) * width,), "d": (knob, width)}

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """A layer: two real FFTs, two twiddles of N/2 + 1 complex numbers, two diagonals."""
        width = max(in_features, out_features)
        twiddle = 4 * (width // 2 + 1)
        cropped = width - out_features  # entries that the outermost A does not have
        per_vector = knob * 2 * (real_fft_mult_adds(width) + twiddle + width) - cropped
        return (Order("layers", twiddle, per_vector),)

    @classmethod
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:
        """All are diagonals."""
        return dict.fromkeys(cls.shapes(in_features, out_features, knob), 1)

    def stages(self, order: str) -> State:  # noqa: ARG002
        """All layers as one stage: the cosine transform has no plain matrix."""
        dtype = torch.promote_types(self.d.dtype, torch.float32)  # there is no FFT in half precision
        cosine = CosineTransform(self.d.shape[1], self.d.to(dtype))
        return (_Layers(cosine, self._diagonals(dtype)),)

    def _diagonals(self, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
        """A and D of each layer, the outermost first."""
        layers, width = self.d.shape
        sizes = [self.out_features] + [width] * (layers - 1)
        return list(zip(self.a.to(dtype).split(sizes), self.d.to(dtype).unbind(), strict=True))

    def matrix(self) -> Tensor:
        """From the images of the unit vectors, or of those of the outputs where they are fewer.

        In an exported graph, which may know no FFT, by products, many layers at once: exporters take
        milliseconds for every operation, and a chain of dozens of layers in dozens of places would take
        minutes.
        """
        if torch.compiler.is_exporting():
            return self._multiplied()
        return self._row_by_row() if self.out_features < self.in_features else super().matrix()

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Of as many vectors as the shorter side has; on rows the outermost A acts whole."""
        (order,) = cls.orders(in_features, out_features, knob)
        cropped = max(0, in_features - out_features)
        return order.per_call + min(in_features, out_features) * (order.per_vector + cropped)

    def _row_by_row(self) -> Tensor:
        """W by its rows, each an image of one unit vector under the transpose."""
        diagonals = self._stacked(torch.promote_types(self.d.dtype, torch.float32))
        cosine = CosineTransform(self.in_features, diagonals)
        chunks = torch.arange(self.out_features, device=self.d.device).split(
            max(1, _AT_ONCE // self.in_features)
        )
        rows = torch.cat([rows_before_scale(cosine, diagonals, chunk) for chunk in chunks])
        return (diagonals[0, : self.out_features, None] * rows).to(result_type(self.d))

    def _multiplied(self) -> Tensor:
        """W as a product of matrices."""
        layers, width = self.d.shape
        cosine = cosine_matrix(width, self.d)  # C
        inverse = unriffle(cosine.T)  # C⁻¹ P
        outer = F.pad(self.a[: self.out_features], (0, width - self.out_features))
        a = torch.cat([outer, self.a[self.out_features :]]).reshape(layers, width)
        at_once = max(1, _AT_ONCE // width**2)
        matrix: Tensor | None = None
        for start in range(0, layers, at_once):
            some = slice(start, start + at_once)
            factors = (a[some, :, None] * cosine * self.d[some, None, :]) @ inverse  # A C D C⁻¹ P of each
            product = _product(factors)
            matrix = product if matrix is None else matrix @ product
        assert matrix is not None
        return matrix[: self.out_features, : self.in_features]

    @classmethod
    def matrices(cls, alike: Sequence[Transform]) -> Tensor:
        """All at once."""
        return matrices_at_once(alike)

    def entry_std(self, std: float) -> float:
        """Signs alone make W orthogonal, with mean square 1/N; all 2L diagonals share the scale."""
        return float((std * self.d.shape[1] ** 0.5) ** (1 / (2 * self.knob)))

    def sample(self, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
        """Random signs: an orthogonal matrix at any depth."""
        signs = 2 * torch.randint(0, 2, shape, generator=generator, device="cpu") - 1
        return signs * self.entry_std(std)

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """Least squares, one diagonal at a time, from the present parameters: the error never rises."""
        target = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
        self._take(fit(target, self._stacked(target.dtype)))

    @torch.no_grad()
    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        """The same, then least squares in the metric."""
        self.project_(matrix)
        if metric is not None:
            self._take(fit_in(metric, matrix.double(), self._stacked(torch.float64)))

    @classmethod
    def fit_losses(cls, matrix: Tensor, metric: Metric, knobs: Sequence[int], **options: Any) -> list[float]:
        """What a tenth of the work reaches in the metric.

        Where it pays for no pass only the rows are scaled, and more layers bring nothing: one stands for all.
        """
        losses: list[float] = []
        passes = [passes_in(max(matrix.shape), 2 * knob, WORK // 10) for knob in knobs]
        with torch.no_grad():
            for place, knob in enumerate(knobs):
                if place and not passes[place] and not passes[place - 1]:
                    losses.append(losses[-1])
                    continue
                made = cls(matrix.shape[1], matrix.shape[0], knob, dtype=torch.float64, **options)
                fresh = made._stacked(torch.float64)
                made._take(fit_in(metric, matrix.double(), fresh, WORK // 10))
                losses.append(float(metric.loss(made.matrix() - matrix)))
        return losses

    def _stacked(self, dtype: torch.dtype) -> Tensor:
        """A1, D1, A2, D2, … as rows of N."""
        outer, *inner = self._diagonals(dtype)
        cropped = F.pad(outer[0], (0, self.d.shape[1] - self.out_features))
        return torch.stack([cropped, outer[1], *itertools.chain(*inner)])

    def _take(self, diagonals: Tensor) -> None:
        """The inverse of `_stacked`."""
        a, d = diagonals.reshape(-1, 2, self.d.shape[1]).unbind(1)
        self.a.copy_(torch.cat([a[0, : self.out_features], a[1:].flatten()]))
        self.d.copy_(d)


def _product(factors: Tensor) -> Tensor:
    """The product of matrices (n, N, N), in their order: neighbours first, all pairs at once."""
    while len(factors) > 1:
        even = len(factors) // 2 * 2
        pairs = factors[0:even:2] @ factors[1:even:2]
        factors = pairs if even == len(factors) else torch.cat([pairs, factors[even:]])
    return factors[0]


class _Layers(NamedTuple):
    """A C D C⁻¹ P, layer after layer, between padding to N and cropping to out."""

    cosine: CosineTransform
    diagonals: list[tuple[Tensor, Tensor]]  # A and D of each layer, the outermost first

    def rows(self, x: Tensor) -> Tensor:
        """The layers on the last axis, in the precision of the diagonals."""
        y = F.pad(x.to(self.diagonals[0][1].dtype), (0, self.cosine.width - x.shape[-1]))
        for a, d in reversed(self.diagonals):  # the last factor of the product acts first
            y = self.cosine.forward(d * self.cosine.inverse(riffle(y)))
            y = a * y[..., : a.shape[0]]
        return y.to(result_type(x))

    def columns(self, x: Tensor) -> Tensor:
        """The transforms run along the last axis, so the channels are put there."""
        return self.rows(x.mT).mT
