"""The contract of a transform: y = W x, with W (out × in) structured by one whole-number knob.

Class level, without making a tensor: which knobs a shape allows, in which orders it runs, what each costs.
Instance level: prepare an order and apply it, form W, draw W afresh, fit W to a given matrix.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .metric import Metric
from .numerics import clamp_knob
from .orders import FORMED, MANY_BITS, Order, cheapest, convolving, known_positions
from .refine import ROUGH, making, refine_
from .stages import Product, State

Shapes = dict[str, tuple[int, ...]]
_UNITS = 1 << 26  # values of unit vectors that are pushed through at a time


class Transform(nn.Module, abc.ABC):
    """A bias-free linear map from `in_features` to `out_features`.

    A call runs in two steps. `prepare(order)` does all that does not depend on the input and gives the stages
    to run in turn; `apply(state, x)` runs them. By itself a transform takes the order that needs the fewest
    mult-adds for the number of vectors at hand; "formed", which multiplies by the dense matrix, is always one
    of them.

    >>> import understudy as us
    >>> us.get_transform("low_rank")(8, 12, 3)(torch.ones(5, 8)).shape  # from 8 to 12, rank 3
    torch.Size([5, 12])
    """

    name: ClassVar[str]
    knob_name: ClassVar[str]
    has_rank: ClassVar[bool] = False  # the knob is a width between two products
    options: ClassVar[dict[str, tuple[str, ...]]] = {}  # option → legal values, the default first
    mult_adds_rise: ClassVar[bool] = True  # along the knobs; where not, plans for mult-adds leave some out
    descends: ClassVar[bool] = False  # `project_` descends from where it is, and may miss the nearest W
    keeps_much: ClassVar[bool] = False  # a call keeps more for its backward pass than its input and W
    is_closed_form: ClassVar[bool] = False  # one decomposition tells what the fit at every knob loses
    is_for_auto: ClassVar[bool] = True  # may be taken by a plan that chooses a family for each layer

    def __init__(
        self,
        in_features: int,
        out_features: int,
        knob: int,
        *,
        seed: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.check_knob(in_features, out_features, knob)
        self.in_features = in_features
        self.out_features = out_features
        self.knob = knob
        self.seed = seed
        self.legal_orders = self.all_orders(in_features, out_features, knob)  # once: a call only compares
        for name, shape in self.shapes(in_features, out_features, knob).items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    # ---- class level: no tensor is made -------------------------------------------------------------

    @classmethod
    @abc.abstractmethod
    def knobs(cls, in_features: int, out_features: int) -> Sequence[int]:
        """The legal knobs of a shape, cheapest first; empty when the shape is refused."""

    @classmethod
    def knob_at(cls, in_features: int, out_features: int, scale: float) -> int:
        """The legal knob at a normalised scale in 0..1, where 1 is the most expensive: here in proportion."""
        legal = cls.knobs(in_features, out_features)
        return clamp_knob(scale * legal[-1], legal)

    @classmethod
    @abc.abstractmethod
    def shapes(cls, in_features: int, out_features: int, knob: int) -> Shapes:
        """The parameters, by name, in the order in which they are drawn."""

    @classmethod
    @abc.abstractmethod
    def orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """The ways to run without forming W; none where W is all there is."""

    @classmethod
    def forming_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Mult-adds of `matrix`; as it is here, of sending the unit vectors through the cheapest order."""
        order = cheapest(cls.orders(in_features, out_features, knob), in_features)
        return order.mult_adds(in_features)

    @classmethod
    def all_orders(cls, in_features: int, out_features: int, knob: int) -> tuple[Order, ...]:
        """Every way to run: "formed", which wins where it ties, then those of `orders`."""
        forming = cls.forming_mult_adds(in_features, out_features, knob)
        formed = Order(FORMED, forming, in_features * out_features, whole=True)
        return formed, *cls.orders(in_features, out_features, knob)

    @classmethod
    def params(cls, in_features: int, out_features: int, knob: int) -> int:
        """Number of trainable parameters."""
        return sum(math.prod(shape) for shape in cls.shapes(in_features, out_features, knob).values())

    @classmethod
    def index_bytes(cls, in_features: int, out_features: int, knob: int) -> int:  # noqa: ARG003
        """Bytes that are saved beside the parameters, as the places of entries; here none are."""
        return 0

    @classmethod
    def mult_adds(cls, in_features: int, out_features: int, knob: int, positions: int = 1) -> int:
        """Mult-adds for `positions` vectors in one call without forming W, where there is such a way."""
        formed, *structured = cls.all_orders(in_features, out_features, knob)
        return cheapest(structured or [formed], positions).mult_adds(positions)

    @classmethod
    def executed_mult_adds(
        cls, in_features: int, out_features: int, knob: int, positions: int, area: int = 1
    ) -> int:
        """Mult-adds of one call on `positions` vectors, by the order that a call takes by itself.

        Where the vectors are patches of `area` taps, that is one whose first stage is a convolution.
        """
        orders = convolving(cls.all_orders(in_features, out_features, knob), area)
        return cheapest(orders, positions).mult_adds(positions)

    @classmethod
    def ideal_mult_adds(cls, in_features: int, out_features: int, knob: int) -> int:
        """Mult-adds a vector by the cheapest order, all that does not depend on the input done ahead."""
        return cls.executed_mult_adds(in_features, out_features, knob, 1 << MANY_BITS) >> MANY_BITS

    @classmethod
    def fans(cls, in_features: int, out_features: int, knob: int) -> dict[str, int]:
        """By the name of a parameter, how many numbers one output of that factor sums.

        As it is here, the columns of its matrices; a vector is a diagonal.
        """
        shapes = cls.shapes(in_features, out_features, knob)
        return {name: shape[-1] if len(shape) > 1 else 1 for name, shape in shapes.items()}

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

    def order_for(self, positions: int, area: int = 1) -> Order:
        """The cheapest order for a call on so many vectors; for none at all, one matrix product.

        Of patches of `area` taps only the orders count that need not unfold them.
        """
        positions = known_positions(positions)
        if positions == 0:
            return self.legal_orders[0]
        return cheapest(convolving(self.legal_orders, area), positions)

    def legal_order(self, name: str) -> Order:
        """An order by its name; a ValueError names the legal ones."""
        for order in self.legal_orders:
            if order.name == name:
                return order
        names = ", ".join(repr(order.name) for order in self.legal_orders)
        raise ValueError(f"order {name!r} of {self.name} is not one of {names}")

    def prepare(self, order: str) -> State:
        """All that does not depend on the input: the stages of an order, ready to be applied."""
        self.legal_order(order)
        return (Product(self.matrix()),) if order == FORMED else self.stages(order)

    def stages(self, order: str) -> State:
        """The stages of an order of `orders`, in the order in which they meet the input."""
        raise NotImplementedError(
            f"{type(self).__name__} states the order {order!r} and has no stages for it"
        )

    def apply_rows(self, state: State, x: Tensor) -> Tensor:
        """Run prepared stages on `(..., in)`, giving `(..., out)`."""
        leading = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1])
        for stage in state:
            x = stage.rows(x)
        return x.reshape(*leading, self.out_features)

    def apply_columns(self, state: State, x: Tensor) -> Tensor:
        """Run prepared stages on `(batch, in, positions)`, giving `(batch, out, positions)`."""
        for stage in state:
            x = stage.columns(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Apply W to `(..., in)` in the cheapest order."""
        self.check_width(x)
        return self.apply_rows(self.prepare(self.order_for(x.numel() // self.in_features).name), x)

    def check_width(self, x: Tensor) -> None:
        """Raise ValueError unless `x` is `(..., in)`."""
        if x.shape[-1] != self.in_features:
            raise ValueError(f"expected (..., {self.in_features}), got {tuple(x.shape)}")

    def matrix(self) -> Tensor:
        """Form W, `(out, in)`; as it is here, from the images of the unit vectors, some at a time."""
        order = cheapest(self.legal_orders[1:], self.in_features)
        parameter = next(self.parameters())
        stages = self.stages(order.name)
        count = max(1, _UNITS // self.in_features)
        images = []
        for start in range(0, self.in_features, count):
            rows = min(count, self.in_features - start)
            units = torch.eye(rows, device=parameter.device, dtype=parameter.dtype)
            if rows < self.in_features:
                units = F.pad(units, (start, self.in_features - start - rows))
            images.append(self.apply_rows(stages, units))
        return (images[0] if len(images) == 1 else torch.cat(images)).T

    @classmethod
    def matrices(cls, alike: Sequence[Transform]) -> Tensor | None:  # noqa: ARG003
        """W of several of one shape and knob, `(n, out, in)`, in about as many operations as one of them.

        Here None: there is no way that is worth more than forming one after the other.
        """
        return None

    @abc.abstractmethod
    def entry_std(self, std: float) -> float:
        """Standard deviation of each parameter entry that gives the formed matrix entries of `std`."""

    @abc.abstractmethod
    def project_(self, matrix: Tensor) -> None:
        """Set the parameters so that W is as near as the family allows to `matrix`, `(out, in)`."""

    def fit_(self, matrix: Tensor, metric: Metric | None = None) -> None:
        """The same in a metric of the data, never worse there than the plain fit."""
        self.project_(matrix)
        if metric is not None:
            refine_(self, self.matrix, matrix, metric)

    @classmethod
    def fit_losses(cls, matrix: Tensor, metric: Metric, knobs: Sequence[int], **options: Any) -> list[float]:
        """What a fit at each of these knobs loses in the metric, with less effort than `fit_` makes."""
        out_features, in_features = matrix.shape
        losses = []
        for knob in knobs:
            made = cls(in_features, out_features, knob, dtype=torch.float64, **options)
            with making(ROUGH):
                made.project_(matrix)
                refine_(made, made.matrix, matrix, metric)
            losses.append(float(metric.loss(made.matrix().detach() - matrix)))
        return losses

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

    def leave_to_the_graph_(self) -> None:
        """Drop what is not saved and an exported graph makes by itself: here nothing is."""

    def spec_options(self) -> dict[str, str]:
        """The options this instance was built with, as `options` names them."""
        return {}

    def extra_repr(self) -> str:
        """Show the shape and the knob when a model is printed."""
        return f"{self.in_features} → {self.out_features}, {self.knob_name}={self.knob}"


def describe_knobs(legal: Sequence[int]) -> str:
    """Say a sequence of knobs in few words: `1..8`, `{8, 4, 2, 1}` or `{} (this shape is refused)`."""
    if not legal:
        return "{} (this shape is refused)"
    if isinstance(legal, range):
        return f"{legal[0]}..{legal[-1]}"
    return "{" + ", ".join(map(str, legal)) + "}"
