"""Low rank through pivot rows: some rows of W as they are, all others as combinations of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .base import Shapes, Transform
from .low_rank import LowRank, low_rank_factors
from .metric import Metric
from .orders import Order
from .stages import Follow, Product, State


class Pivoted(Transform):
    """W = P [I; A] V, rank r: V holds r rows of W, A makes the others of them, P puts all in their places.

    Cost: r (in + out − r) parameters and as many mult-adds a vector.

    Every matrix of rank r is one of these, with r² fewer parameters than two factors have. The places are
    `out` whole numbers, found by the fit and saved with the weights.

    The interpolative decomposition (Cheng, Gimbutas, Martinsson and Rokhlin, SIAM J. Sci. Comput. 2005); as a
    layer: Zhao, Zhang and Fang, "Pivoting Factorization", 2025 (arXiv 2501.19090).
    """

    name = "pivoted"
    knob_name = "rank"
    has_rank = True
    is_closed_form = True
    mult_adds_rise = False  # with the rank the rows that have to be formed get fewer
    v: nn.Parameter  # (r, in)
    a: nn.Parameter  # (out − r, r)
    places: Tensor  # (out,): where in [I; A] V each row of W is

    @classmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """Every rank with which some row is a combination of others."""
        return range(1, min(in_features, out_features - 1) + 1)

    @classmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The pivot rows, and how the others follow from them."""
        return {"v": (knob, in_features), "a": (out_features - knob, knob)}

    @classmethod
    def index_bytes(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """The places, four bytes each."""
        return 4 * out_features

    @classmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """The pivot rows first, then the others from their outputs; or all rows by one matrix U = P [I; A].

        The second multiplies by zeros and ones, and moves less.
        """
        return (
            Order("V,A", 0, knob * (in_features + out_features - knob), whole=True),
            Order("V,U", 0, knob * (in_features + out_features), whole=True),
        )

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """One product, for the rows that are no pivots."""
        return (out_features - knob) * knob * in_features

    def stages(self, order: str) -> State:
        """A plain product, which a convolution runs with its whole kernel, and what follows from it."""
        if order == "V,A":
            return Product(self.v), Follow(self.a, self.places)
        eye = torch.eye(self.knob, device=self.a.device, dtype=self.a.dtype)
        return Product(self.v), Product(torch.cat([eye, self.a]).index_select(0, self.places))

    def matrix(self) -> Tensor:
        """[I; A] V, its rows in their places."""
        return torch.cat([self.v, self.a @ self.v]).index_select(0, self.places)

    def entry_std(self, std: float) -> float:
        """Of the pivot rows; the entries of A are drawn so that the others have the same."""
        return std

    @torch.no_grad()
    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw pivot rows of `std`, which come first, and A so that the others have it too."""
        super().reset_parameters(std, generator)
        places = torch.arange(self.out_features, dtype=torch.int32, device=self.v.device)
        self.register_buffer("places", places)
        if not self.a.is_meta:
            std = self.in_features**-0.5 if std is None else std
            self.a.mul_(self.knob**-0.5 / std)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        places = state_dict.get(f"{prefix}places")
        if isinstance(places, Tensor) and not places.is_meta:
            rows = torch.arange(self.out_features, device=places.device)
            if not torch.equal(places.long().sort().values, rows):
                raise ValueError(f"places do not name each of {self.out_features} rows once")
        super()._load_from_state_dict(state_dict, prefix, *others)

    @torch.no_grad()
    def project_(self, matrix: Tensor) -> None:
        """The nearest matrix of this rank."""
        self.fit_(matrix)

    @torch.no_grad()
    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        """The nearest in any metric, its pivots those of an LU decomposition: A stays small."""
        u, v = low_rank_factors(matrix.double(), self.knob, metric)
        order, lower, upper = torch.linalg.lu(u)  # U = P L R, L below the diagonal at most 1
        pivots, rest = lower[: self.knob], lower[self.knob :]
        places = order.argmax(1)  # row i of U is row places[i] of L R
        self.v.copy_(pivots @ upper @ v)
        self.a.copy_(torch.linalg.solve_triangular(pivots, rest, upper=False, left=False, unitriangular=True))
        self.places.copy_(places)

    @classmethod
    def fit_losses(cls, matrix: Tensor, metric: Metric, knobs: Sequence[int], **options: Any) -> list[float]:
        """Those of the same rank by two factors."""
        return LowRank.fit_losses(matrix, metric, knobs, **options)
