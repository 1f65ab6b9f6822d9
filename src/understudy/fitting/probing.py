"""What an error of a layer does to the outputs in fact, beside what the moments of the layer foretell.

tr(G ΔW Σ ΔWᵀ) takes what comes in and what goes out to have nothing to do with each other, the errors at the
positions of a sample to add up as if by chance, and errors to be small. Before a mean over all tokens or
pixels, or before a norm, the outputs may lose a hundred times as much. So each layer is tried once: with the
nearest matrix of half its parameters, for a few samples.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from understudy.layers.dense import DenseMap, the_dense_map
from understudy.transforms.low_rank import low_rank_factors

from .calibration import SiteMoments
from .fit import times
from .inputs import Batch, OutputOf, joined, some_of_each
from .running import Look, Watch, run, watching

_SAMPLES = 32
_SHARE = 0.5  # of the layer's parameters that the matrix has with which it is tried


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

    1 where nothing can be told: of a layer whose outputs no gradient reaches, or that has no smaller rank.
    """
    batch = joined(some_of_each(batches, _SAMPLES))
    wanted = run(model, batch, output_of).double()
    found = {}
    for number, (path, moments) in enumerate(seen.items()):
        watch("trying an error of each layer", number, len(seen))
        layer = layers[path]
        error, foretold = _likely_error(layer, moments)
        lost = 0.0
        if foretold > 0:
            constant = -times(error, moments.mean)
            with watching({path: layer}, _erring(layer, error, constant)):
                made = run(model, batch, output_of).double()
            lost = float((made - wanted).square().sum()) / batch.size
        found[path] = lost / foretold if 0 < lost < math.inf else 1.0
    return found


def _likely_error(layer: DenseMap, moments: SiteMoments) -> tuple[Tensor, float]:
    """Ŵ − W of the nearest matrix of half the parameters, group by group, and what it is said to lose."""
    metrics = moments.metrics(is_centred=True)
    errors, foretold = [], 0.0
    for matrix, metric in zip(layer.matrix.detach().double().cpu().chunk(len(metrics)), metrics, strict=True):
        out_features, in_features = matrix.shape
        rank = max(1, int(_SHARE * matrix.numel() / (out_features + in_features)))
        if moments.is_reached and rank < min(matrix.shape):
            u, v = low_rank_factors(matrix, rank, metric)
            errors.append(u @ v - matrix)
            foretold += float(metric.loss(errors[-1]))
        else:
            errors.append(torch.zeros_like(matrix))
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
