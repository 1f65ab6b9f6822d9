"""What an error of a layer does to the outputs in fact, beside what the moments of the layer foretell.

tr(G ΔW Σ ΔWᵀ) takes what comes in and what goes out to have nothing to do with each other, the errors at the
positions of a sample to add up as if by chance, and errors to be small. Before a mean over all tokens or
pixels, or before a norm, the outputs may lose a hundred times as much. So each layer is tried once: with the
nearest matrix of half its parameters, for a few samples.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from understudy.layers.dense import DenseMap, the_dense_map
from understudy.transforms.low_rank import low_rank_factors

from .calibration import SiteMoments
from .fit import times
from .inputs import Batch, DataError, OutputOf, some_of_each
from .running import Look, Watch, run, watching

_SAMPLES = 32
_SHARE = 0.5  # of the layer's parameters that the matrix has with which it is tried
_FELT = 1e-2  # of the layer's whole worth: a matrix that loses less is only told apart from it by the ridge
_ROUNDING = 1e-10  # of the outputs, squared: what is lost less is no loss


@torch.no_grad()
def times_foretold(
    model: nn.Module,
    layers: Mapping[str, DenseMap],
    seen: Mapping[str, SiteMoments],
    batches: list[Batch],
    output_of: OutputOf | None,
    watch: Watch,
) -> dict[str, float]:
    """How many times what its moments foretell the outputs lose by an error of each layer, by path.

    Of a layer of which that cannot be told, since it has no smaller rank, does not run on the few samples or
    changes what is computed, it is taken to be as in most; of one whose error makes outputs infinite, as in
    the worst.
    """
    trial = _Trial(model, some_of_each(batches, _SAMPLES), output_of)
    found: dict[str, float] = {}
    for number, (path, moments) in enumerate(seen.items()):
        watch("trying an error of each layer", number, len(seen))
        error, foretold = _likely_error(layers[path], moments)
        lost = trial.lost(path, layers[path], error, -times(error, moments.mean)) if foretold else None
        if lost is not None:
            found[path] = lost / foretold
    finite = [factor for factor in found.values() if factor < math.inf] or [1.0]
    usual, worst = statistics.median(finite), max(finite)
    return {path: min(found.get(path, usual), worst) for path in seen}


class _Trial:
    """A network on a few samples, and what its outputs lose when a layer errs."""

    def __init__(self, model: nn.Module, batches: list[Batch], output_of: OutputOf | None) -> None:
        self.model, self.batches, self.output_of = model, batches, output_of
        self.wanted = self._outputs()
        self.size = sum(batch.size for batch in batches)
        self.least = _ROUNDING * sum(float(wanted.square().sum()) for wanted in self.wanted)

    def lost(self, path: str, layer: DenseMap, error: Tensor, constant: Tensor) -> float | None:
        """‖z − ẑ‖² of a sample, perhaps infinite; None where it cannot be told."""
        try:
            with watching({path: layer}, _erring(layer, error, constant)):
                made = self._outputs()
        except DataError:  # it cannot compute with other values
            return None
        if any(own.shape != wanted.shape for own, wanted in zip(made, self.wanted, strict=True)):
            return None
        lost = sum(
            float((own - wanted).square().sum()) for own, wanted in zip(made, self.wanted, strict=True)
        )
        if lost <= self.least:
            return None
        return lost / self.size if math.isfinite(lost) else math.inf

    def _outputs(self) -> list[Tensor]:
        """Of every batch; what a network draws on the CPU, it draws each time."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)  # `torch.manual_seed` would reach the caller's GPUs
            return [run(self.model, batch, self.output_of).double() for batch in self.batches]


def _likely_error(layer: DenseMap, moments: SiteMoments) -> tuple[Tensor, float]:
    """Ŵ − W of the nearest matrix of at most half the parameters, and what it is said to lose, perhaps 0."""
    metrics = moments.metrics(is_centred=True)
    errors, foretold = [], 0.0
    for matrix, metric in zip(layer.matrix.detach().double().cpu().chunk(len(metrics)), metrics, strict=True):
        rank = int(_SHARE * matrix.numel() / sum(matrix.shape)) or int(min(matrix.shape) > 1)
        if not moments.is_reached or not rank:
            errors.append(torch.zeros_like(matrix))
            continue
        u, v = low_rank_factors(matrix, rank, metric)  # the leading directions first
        whole = float(metric.loss(matrix))
        while float(metric.loss(u @ v - matrix)) < _FELT * whole and len(v) > 1:
            u, v = u[:, : len(v) // 2], v[: len(v) // 2]
        errors.append(u @ v - matrix)
        foretold += float(metric.loss(errors[-1]))
    return torch.cat(errors), foretold


def _zeros_like(parameter: nn.Parameter | None) -> nn.Parameter | None:
    return None if parameter is None else nn.Parameter(torch.zeros_like(parameter), requires_grad=False)


def _erring(layer: DenseMap, error: Tensor, constant: Tensor) -> Look:
    """A look that adds to the output what the error makes of the input, and a constant."""
    twin = copy.copy(layer.module)
    twin._parameters = {name: _zeros_like(parameter) for name, parameter in layer.module._parameters.items()}
    weight = the_dense_map(twin).weight
    weight.copy_(error.reshape(weight.shape))
    axes = () if layer.geometry is None else (1,) * layer.geometry.dims

    def look(_: str, __: DenseMap, x: Tensor, y: Tensor) -> Tensor:
        made: Tensor = twin.forward(x)  # without its hooks, which are the network's
        return y + made + constant.to(y).reshape(-1, *axes)

    return look
