"""The contract of a transform: y = W x, with W (out × in) structured by one whole-number knob.

Class level, without making a tensor: which knobs a shape allows, what each costs.
Instance level: apply W, form W, draw W afresh, fit W to a given matrix.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Path = Literal["auto", "structured", "formed"]
Shapes = dict[str, tuple[int, ...]]

# So many vectors that whatever is done once a call vanishes beside them.
_MANY_BITS = 60


class Transform(nn.Module, abc.ABC):
    """A bias-free linear map from `in_features` to `out_features`.

    `path` says how a call runs: "structured" applies the factors, "formed" multiplies by the dense matrix
    built from them, and "auto" takes whichever needs fewer mult-adds for the number of vectors at hand.
    """

    name: ClassVar[str]
    knob_name: ClassVar[str]
    options: ClassVar[dict[str, tuple[str, ...]]] = {}  # option → legal values, the default first
    keeps_much: ClassVar[bool] = False  # a call keeps more for its backward pass than its input and W

    def __init__(
        self,
        in_features: int,
        out_features: int,
        knob: int,
        *,
        seed: int = 0,
        path: Path = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.check_knob(in_features, out_features, knob)
        self.in_features = in_features
        self.out_features = out_features
        self.knob = knob
        self.seed = seed
        self.path: Path = path
        for name, shape in self.shapes(in_features, out_features, knob).items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    # ---- class level: no tensor is made -------------------------------------------------------------

    @classmethod
    @abc.abstractmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """The legal knobs of a shape, cheapest first; empty when the shape is refused."""

    @classmethod
    @abc.abstractmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """The legal knob at a normalised scale in 0..1, where 1 is the most expensive."""

    @classmethod
    @abc.abstractmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The parameters, by name, in the order in which they are drawn."""

    @classmethod
    @abc.abstractmethod
    def mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int = 1) -> int:
        """Mult-adds of the structured path for `positions` vectors in one call."""

    @classmethod
    @abc.abstractmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Mult-adds of forming the dense matrix."""

    @classmethod
    def params(cls, in_features: int, out_features: int, knob: int) -> int:
        """Number of trainable parameters."""
        return sum(math.prod(shape) for shape in cls.shapes(in_features, out_features, knob).values())

    @classmethod
    def formed_mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int) -> int:
        """Mult-adds of forming the matrix and applying it to `positions` vectors."""
        return cls.forming_mult_adds(in_features, out_features, knob) + positions * in_features * out_features

    @classmethod
    def prefers_structured(cls, in_features: int, out_features: int, knob: int, positions: int) -> bool:
        """Whether the structured path needs fewer mult-adds than forming the matrix and applying it."""
        formed = cls.formed_mult_adds(in_features, out_features, knob, positions)
        return cls.mult_adds(in_features, out_features, knob, positions) < formed

    @classmethod
    def executed_mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int) -> int:
        """Mult-adds of one call on `positions` vectors, by the path that "auto" takes."""
        if cls.prefers_structured(in_features, out_features, knob, positions):
            return cls.mult_adds(in_features, out_features, knob, positions)
        return cls.formed_mult_adds(in_features, out_features, knob, positions)

    @classmethod
    def ideal_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Mult-adds a vector by the cheaper path once all that does not depend on the input is done ahead."""
        return cls.executed_mult_adds(in_features, out_features, knob, 1 << _MANY_BITS) >> _MANY_BITS

    @classmethod
    def nearest_knob(cls, in_features: int, out_features: int, knob: int) -> int:
        """The legal knob to use when `knob` is asked of a whole network: itself, or an error."""
        cls.check_knob(in_features, out_features, knob)
        return knob

    @classmethod
    def check_knob(cls, in_features: int, out_features: int, knob: int) -> None:
        """Raise ValueError, naming the legal knobs, unless `knob` is one of them."""
        for label, size in (("in_features", in_features), ("out_features", out_features)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise ValueError(f"{label} is {size!r}, not a whole number of at least 1")
        legal = cls.knobs(in_features, out_features)
        if isinstance(knob, bool) or not isinstance(knob, int) or knob not in legal:
            raise ValueError(
                f"{cls.knob_name} {knob!r} is not in {describe_knobs(legal)} "
                f"for {in_features} → {out_features}"
            )

    # ---- instance level ---------------------------------------------------------------------------

    @abc.abstractmethod
    def structured(self, x: Tensor) -> Tensor:
        """Apply W to `(..., in)` by its factors, giving `(..., out)`."""

    @abc.abstractmethod
    def matrix(self) -> Tensor:
        """Form W, `(out, in)`."""

    @abc.abstractmethod
    def entry_std(self, std: float) -> float:
        """Standard deviation of each parameter entry that gives the formed matrix entries of `std`."""

    @abc.abstractmethod
    def project_(self, matrix: Tensor) -> None:
        """Set the parameters so that W is as near as the family allows to `matrix`, `(out, in)`."""

    def structured_columns(self, x: Tensor) -> Tensor:
        """Apply W to `(batch, in, positions)`, giving `(batch, out, positions)`."""
        return self.structured(x.mT).mT

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """`(first, second)` with W = second · first, where a convolution can run the two in turn."""
        return None

    def sample(self, shape: torch.Size, std: float, generator: torch.Generator) -> Tensor:
        """Fresh values for one parameter when the formed matrix shall have entries of `std`.

        Their mean square is made exact: a factor of few entries would otherwise scale all of W by chance.
        """
        values = torch.randn(shape, generator=generator, device="cpu", dtype=torch.float32)
        return values * (self.entry_std(std) / values.square().mean().sqrt())

    @torch.no_grad()
    def reset_parameters(self, std: float | None = None, generator: torch.Generator | None = None) -> None:
        """Draw all parameters so that the formed matrix has entries of `std` (default: in_features^-0.5).

        The draw comes from `generator`, or else from this transform's own seed: the global random state is
        neither read nor changed.
        """
        std = self.in_features**-0.5 if std is None else std
        if not std > 0:
            raise ValueError(f"std {std!r} is not above 0")
        generator = generator or torch.Generator("cpu").manual_seed(self.seed)
        for parameter in self.parameters():
            if not parameter.is_meta:
                parameter.copy_(self.sample(parameter.shape, std, generator))

    def runs_structured(self, positions: int) -> bool:
        """Whether a call on `positions` vectors takes the structured path; no vectors, no structure."""
        positions = known_positions(positions)
        if positions == 0:
            return False
        if self.path != "auto":
            return self.path == "structured"
        return self.prefers_structured(self.in_features, self.out_features, self.knob, positions)

    def forward(self, x: Tensor) -> Tensor:
        """Apply W to `(..., in)`."""
        if x.shape[-1] != self.in_features:
            raise ValueError(f"expected (..., {self.in_features}), got {tuple(x.shape)}")
        if self.runs_structured(x.numel() // self.in_features):
            return self.structured(x)
        return F.linear(x, self.matrix())

    def spec_options(self) -> dict[str, str]:
        """The options this instance was built with, as `options` names them."""
        return {}

    def extra_repr(self) -> str:
        """Show the shape and the knob when a model is printed."""
        return f"{self.in_features} → {self.out_features}, {self.knob_name}={self.knob}"


def known_positions(positions: int) -> int:
    """How many vectors to decide for: in an exported graph the batch may be symbolic, so very many."""
    return 1 << _MANY_BITS if torch.compiler.is_exporting() else positions


def describe_knobs(legal: Sequence[int]) -> str:
    """Say a sequence of knobs in few words: `1..8`, `{8, 4, 2, 1}` or `{} (this shape is refused)`."""
    if not legal:
        return "{} (this shape is refused)"
    if isinstance(legal, range):
        return f"{legal[0]}..{legal[-1]}"
    return "{" + ", ".join(map(str, legal)) + "}"


def clamp_knob(knob: float, legal: Sequence[int]) -> int:
    """Round down to a whole knob within a contiguous, rising range."""
    return min(max(math.floor(knob), legal[0]), legal[-1])


def leading_directions(matrix: Tensor, rank: int) -> Tensor:
    """Orthonormal columns that span the leading `rank` directions of a matrix's columns.

    They are eigenvectors of the Gram matrix, in double precision: many times quicker than a full SVD.
    """
    precise = matrix.double()
    vectors: Tensor = torch.linalg.eigh(precise @ precise.T).eigenvectors  # the last is the leading one
    return vectors.flip(-1)[:, :rank].to(matrix.dtype)


def truncated_svd(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The best `(left, right)` of a rank with left · right ≈ matrix; both carry √ of the singular values."""
    if matrix.shape[0] > matrix.shape[1]:
        right, left = truncated_svd(matrix.T, rank)
        return left.T, right.T
    precise = matrix.double()
    basis = leading_directions(precise, rank)
    rest = basis.T @ precise
    root = rest.norm(dim=1).sqrt().clamp(min=torch.finfo(torch.float64).tiny)
    return (basis * root).to(matrix.dtype), (rest / root[:, None]).to(matrix.dtype)


def balance_(*parameters: Tensor) -> None:
    """Scale tensors to equal norms without changing their product: gradients then reach all of them alike."""
    norms = torch.stack([parameter.norm() for parameter in parameters])
    if bool((norms > 0).all()):
        for parameter, factor in zip(parameters, norms.log().mean().exp() / norms, strict=True):
            parameter.mul_(factor)
