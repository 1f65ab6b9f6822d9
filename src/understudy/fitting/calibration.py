"""What a network's layers see: the moments of every site's input, and how much its outputs matter.

Σ = E[(x − x̄)(x − x̄)ᵀ] over the vectors that a layer's weight is multiplied with, in float64. G = E[g gᵀ]
with g the gradient, at the layer's output, of a random combination of the network's outputs: an error Δy of
the layer changes these by about ΔyᵀGΔy. Together they weigh an error ΔW by tr(G ΔW Σ ΔWᵀ), G being scaled so
that this is what an error of the layer was seen to do (`probing.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from understudy._util.records import from_plain, to_plain
from understudy._util.text_tables import Shown, Table, table
from understudy.layers.dense import DenseMap, the_dense_map
from understudy.layers.replacement import Way
from understudy.students.tensors import FileError, TensorFile, read_tensors, write_tensors
from understudy.transforms import Transform
from understudy.transforms.inside import inside_losses
from understudy.transforms.metric import Metric
from understudy.transforms.registry import with_two_factors

from .separate import separated

# Of a layer's knobs: where a family without a closed form is fitted.
_PROBES = (0.0, 0.08, 0.25, 0.5, 1.0)
_TINY = 1e-300
_KIND, _VERSION = "calibration", 2


@dataclasses.dataclass(frozen=True)
class SiteMoments:
    """What one site saw."""

    count: int  # vectors
    mean: Tensor  # (in·taps,)
    covariance: Tensor  # Σ, (in·taps, in·taps); of a grouped convolution that of each group, one on another
    gradient: Tensor | None = None  # G, (out, out)

    @property
    def is_short(self) -> bool:
        """Whether there were fewer vectors than dimensions, so that Σ must be regularised."""
        return self.count <= self.covariance.shape[-1]

    @property
    def is_reached(self) -> bool:
        """Whether any gradient came to the layer's outputs, where that was asked for."""
        return self.gradient is None or bool(self.gradient.any())

    @property
    def entry_worth(self) -> float:
        """What an error of one entry of the weight costs, on average over all."""
        seen = float(self.covariance.diagonal(dim1=-2, dim2=-1).mean())
        return seen * (1.0 if self.gradient is None else float(self.gradient.diagonal().mean()))

    def metrics(self, *, is_centred: bool) -> tuple[Metric, ...]:
        """How much an error of the weight matters: one metric, or one for every group."""
        blocks = self.covariance.reshape(-1, *self.covariance.shape[-2:])
        if not is_centred:
            means = self.mean.reshape(len(blocks), -1)
            blocks = blocks + means[:, :, None] * means[:, None, :]
        if self.gradient is None:
            return tuple(map(Metric.of, blocks))
        out = len(self.gradient) // len(blocks)
        slices = [slice(start, start + out) for start in range(0, len(self.gradient), out)]
        return tuple(
            Metric.of(block, self.gradient[own, own]) for block, own in zip(blocks, slices, strict=True)
        )


@dataclasses.dataclass(frozen=True, repr=False)
class Calibration(Shown):
    """The moments of every site that ran, by path; printable, and saved as one safetensors file.

    >>> import torch, understudy as us
    >>> model, inputs = us.create_model("wrn_10_1"), torch.randn(8, 3, 16, 16)
    >>> seen = us.calibrate(model, inputs)
    >>> us.plan(model, "low_rank", ratio=0.5, calibration=seen).params <= 0.5 * 77_850
    True
    """

    model: str
    samples: int
    layers: Mapping[str, SiteMoments]
    idle: tuple[str, ...] = ()  # sites that never ran on the data
    _known: dict[tuple[object, ...], list[float]] = dataclasses.field(
        default_factory=dict, compare=False
    )  # losses that were asked for before

    @property
    def paths(self) -> tuple[str, ...]:
        """All sites, those that never ran last."""
        return (*self.layers, *self.idle)

    @property
    def unreached(self) -> tuple[str, ...]:
        """Sites at whose outputs no gradient of the network's output came."""
        return tuple(path for path, seen in self.layers.items() if not seen.is_reached)

    def __repr__(self) -> str:
        return f"<Calibration: {len(self.layers)} layers of {self.model}, {self.samples:,} samples>"

    def table(self) -> Table:
        """A row for every layer."""
        rows = []
        for path, seen in self.layers.items():
            values = torch.linalg.eigvalsh(seen.covariance).clamp(min=0)
            effective = float((values.sum(-1) ** 2 / values.square().sum(-1).clamp(min=1e-300)).sum())
            note = "fewer vectors than dimensions: regularised" if seen.is_short else ""
            rows.append((path, f"{seen.count:,}", str(len(seen.mean)), f"{effective:.1f}", note))
        rows += [(path, "0", "", "", "never ran on the data: fitted plainly") for path in self.idle]
        return table(
            ("module", ">vectors", ">dimensions", ">effective", "note"),
            rows,
            title=f"{self.model}, {self.samples:,} samples",
            caption="effective: (Σ λ)² / Σ λ² of the eigenvalues, how many directions the input really has",
            yielding=("note",),
        )

    def check_fits(self, model: nn.Module) -> None:
        """A ValueError where a network lacks a layer that was calibrated."""
        held = {path for path, _ in model.named_modules()}
        for path in self.paths:
            if path not in held:
                known = f"the calibration of {self.model} knows {path!r}, which {type(model).__name__} lacks"
                raise ValueError(f"{known}: calibrate again")

    def metrics(self, path: str, *, is_centred: bool = True) -> tuple[Metric, ...] | None:
        """How much an error of a layer's weight matters, group by group; None for one that never ran.

        Centred, the error of the mean does not count: it is taken back where the layer adds a constant.
        """
        seen = self.layers.get(path)
        return None if seen is None else seen.metrics(is_centred=is_centred)

    def loss(self, path: str, error: Tensor) -> float | None:
        """What an error of a layer's matrix loses, tr(G E Σ Eᵀ); None for a layer that never ran."""
        metrics = self.metrics(path)
        if metrics is None:
            return None
        groups = error.chunk(len(metrics))
        return sum(float(metric.loss(group)) for metric, group in zip(metrics, groups, strict=True))

    def losses(
        self,
        path: str,
        layer: nn.Module,
        transform: type[Transform],
        way: Way,
        knobs: Sequence[int],
        **options: str,
    ) -> list[float]:
        """What the best fit at each knob loses: tr(G ΔW Σ ΔWᵀ), the change of the network's outputs, squared.

        Between a few knobs that are fitted the loss is taken to be a power of the parameters. In a layer that
        never ran, an error is worth what it is on average in those that did.
        """
        dense = the_dense_map(layer)
        metrics = self.metrics(path) or self._assumed(path, dense)
        matrices = dense.matrix.detach().double().cpu().chunk(len(metrics))  # a group each
        if len(metrics) != dense.groups or len(metrics[0].covariance) != matrices[0].shape[1]:
            raise ValueError(f"the calibration of {self.model} is of another {path!r}: calibrate again")
        kernel = tuple(dense.weight.shape[2:])
        out_features, in_features = matrices[0].shape
        if way in ("separable", "inside"):
            in_features //= math.prod(kernel)
        probes = list(knobs) if transform.is_closed_form and way != "inside" else _spread(knobs)
        weight = [float(matrix.square().sum()) for matrix in matrices]  # it may have been trained since
        key = (path, transform.name, way, *weight, tuple(probes), tuple(sorted(options.items())))
        if key not in self._known:
            each = [
                _losses(matrix, metric, transform, way, kernel, probes, options)
                for matrix, metric in zip(matrices, metrics, strict=True)
            ]
            found = [sum(losses) for losses in zip(*each, strict=True)]
            self._known[key] = [min(found[: place + 1]) for place in range(len(found))]
        costs = [transform.params(in_features, out_features, knob) for knob in knobs]
        at = [transform.params(in_features, out_features, knob) for knob in probes]
        return _interpolated(costs, at, self._known[key])

    def _assumed(self, path: str, dense: DenseMap) -> tuple[Metric, ...]:
        """The metric of a layer that never ran: all directions alike."""
        if path not in self.idle:
            raise ValueError(f"the calibration of {self.model} knows no layer {path!r}: calibrate again")
        worths = [seen.entry_worth for seen in self.layers.values()]
        worth = sum(worths) / len(worths) if worths else 1.0
        width = dense.matrix.shape[1]
        return (Metric((worth or 1.0) * torch.eye(width, dtype=torch.float64)),) * dense.groups

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, whole or not at all."""
        tensors = {}
        for name, seen in self.layers.items():
            tensors[f"{name}:mean"], tensors[f"{name}:covariance"] = seen.mean, seen.covariance
            if seen.gradient is not None:
                tensors[f"{name}:gradient"] = seen.gradient
        counts = {name: seen.count for name, seen in self.layers.items()}
        header = _Header(_KIND, _VERSION, self.model, self.samples, counts, self.idle)
        write_tensors(path, {key: tensor.contiguous() for key, tensor in tensors.items()}, to_plain(header))

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a file that `save` wrote; a FileError says what is wrong with any other."""
        try:
            return _read(read_tensors(path, _VERSION))
        except ValueError as error:
            told = str(error).removeprefix(f"{path} ").removeprefix("is ")
            raise FileError(f"{path} is not a calibration: {told}") from error


@dataclasses.dataclass(frozen=True)
class _Header:
    """What the file says beside its tensors."""

    kind: str
    version: int
    model: str
    samples: int
    counts: Mapping[str, int]
    idle: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.kind != _KIND:
            raise ValueError(f"it is a {self.kind}")
        if min((self.samples, *self.counts.values())) < 0:
            raise ValueError("a count is below 0")


def _read(file: TensorFile) -> Calibration:
    """A calibration, every tensor of which belongs to a layer and fits the others of its layer."""
    header = from_plain(_Header, file.header or {})
    layers, left = {}, dict(file.tensors)
    for name, count in header.counts.items():
        mean, covariance = left.pop(f"{name}:mean", None), left.pop(f"{name}:covariance", None)
        gradient = left.pop(f"{name}:gradient", None)
        if mean is None or covariance is None:
            raise ValueError(f"it lacks the moments of {name!r}")
        for tensor in (mean, covariance, *(() if gradient is None else (gradient,))):
            if tensor.dtype != torch.float64 or not bool(tensor.isfinite().all()):
                raise ValueError(f"the moments of {name!r} are not finite numbers of 64 bits")
        groups = covariance.shape[0] if covariance.dim() == 3 else 1
        if covariance.dim() not in (2, 3) or covariance.shape[-1] != covariance.shape[-2]:
            raise ValueError(f"the moments of {name!r} are not square")
        if mean.shape != (groups * covariance.shape[-1],) or 0 in mean.shape:
            raise ValueError(f"the moments of {name!r} have sizes that differ")
        if gradient is not None and (
            gradient.dim() != 2 or gradient.shape[0] != gradient.shape[1] or gradient.shape[0] % groups
        ):
            raise ValueError(f"the gradients of {name!r} are not square")
        layers[name] = SiteMoments(count, mean, covariance, gradient)
    if left:
        raise ValueError(f"{next(iter(left))!r} is of no layer")
    return Calibration(header.model, header.samples, layers, header.idle)


def _losses(
    matrix: Tensor,
    metric: Metric,
    transform: type[Transform],
    way: Way,
    kernel: tuple[int, ...],
    knobs: Sequence[int],
    options: Mapping[str, str],
) -> list[float]:
    """What a stand-in for one matrix loses at each knob."""
    if way == "inside":
        family = with_two_factors(transform)
        return inside_losses(family, matrix, math.prod(kernel), metric, knobs, **options)
    if way != "separable":
        return transform.fit_losses(matrix, metric, knobs, **options)
    parts = separated(matrix, kernel, metric)
    losses = transform.fit_losses(parts.pointwise, parts.metric, knobs, **options)
    return [parts.loss + loss for loss in losses]


def _spread(knobs: Sequence[int]) -> list[int]:
    """A few of many knobs, the first and the last among them."""
    places = {round((len(knobs) - 1) * share) for share in _PROBES}
    return [knobs[place] for place in sorted(places)]


def _interpolated(costs: Sequence[int], at: Sequence[int], losses: Sequence[float]) -> list[float]:
    """Losses at all costs from those at some, straight in logarithms."""
    points = [(math.log(cost), math.log(max(loss, _TINY))) for cost, loss in zip(at, losses, strict=True)]
    found = []
    for cost in costs:
        x = math.log(cost)
        right = next((k for k, point in enumerate(points) if point[0] >= x), len(points) - 1)
        (x0, y0), (x1, y1) = points[max(0, right - 1)], points[right]
        share = (x - x0) / (x1 - x0) if x1 > x0 else 1.0
        found.append(math.exp(y0 + share * (y1 - y0)))
    return found
