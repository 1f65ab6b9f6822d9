"""What a report shows without training: knobs against parameters, wasted hash buckets, ACDC against dense."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from understudy.networks.models import create_model
from understudy.networks.nets import is_builtin
from understudy.planning.planner import plan
from understudy.planning.request import Request
from understudy.planning.sites import Sites, sites
from understudy.results import Curves, HashBuckets, KnobParams, Result, WidthMultAdds
from understudy.transforms import known_transforms
from understudy.transforms.acdc import Acdc
from understudy.transforms.dense import Dense
from understudy.transforms.hashed import Hashed

_STEPS = 21
_WIDTHS = tuple(round(2 ** (exponent / 4)) for exponent in range(4 * 5, 4 * 12 + 1))  # 32 to 4096
_MEASURED_RATIOS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def curves(
    network: str,
    *,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    layers: int = 12,
) -> Curves:
    """The three figures of `understudy.report` that need no training, as numbers.

    `include` and `exclude` are as for `sites`: what the sweep leaves dense. `layers` is the depth of ACDC.

    >>> from understudy.experiments import curves
    >>> curves("wrn_10_1").width_mult_adds.crossover  # from this width on 12 layers of ACDC need fewer
    631
    """
    with torch.device("meta"):
        survey = sites(create_model(network), include=include, exclude=exclude)
    return Curves(knob_params(network, survey), hash_buckets(), width_mult_adds(layers))


def sweep_curves(results: Sequence[Result]) -> Curves | None:
    """The curves of the first network of a sweep that is built in, with the sites of its students.

    >>> from understudy.experiments import load_grid, new_result, plan_cells, sweep_curves
    >>> results = [new_result("digits", planned) for planned in plan_cells(load_grid("digits"))]
    >>> sweep_curves(results).knob_params.network
    'wrn_10_2'
    """
    for result in [*(one for one in results if one.transforms), *results]:
        if is_builtin(result.network):
            try:
                request = Request.from_dict(result.deciding.get("request", {}))
            except ValueError:  # of transforms that are not here, say: the figure can be missed
                continue
            return curves(result.network, include=request.include or None, exclude=request.exclude or None)
    return None


def knob_params(network: str, survey: Sites) -> KnobParams:
    """Appendix B: parameters of the network at each normalised knob, and the range that all can reach."""
    scale = tuple(step / (_STEPS - 1) for step in range(_STEPS))
    reached = {
        name: tuple(plan(survey, name, scale=value, spatial="separable").params for value in scale)
        for name, transform in known_transforms().items()
        if transform is not Dense
    }
    low = max(min(params) for params in reached.values())
    high = min(max(params) for params in reached.values())
    return KnobParams(network, survey.params, scale, reached, (low, high) if low <= high else None)


def hash_buckets(in_features: int = 256, out_features: int = 256) -> HashBuckets:
    """Appendix A: the share of weights that no entry reads, in theory and in matrices that were drawn."""
    ratio = tuple(step / 50 for step in range(1, 51))
    measured: dict[str, list[float]] = {"independent": [], "balanced": []}
    for value in _MEASURED_RATIOS:
        weights = Hashed.knob_at(in_features, out_features, value)
        for indexing, shares in measured.items():
            drawn = Hashed(in_features, out_features, weights, indexing=indexing)  # type: ignore[arg-type]
            shares.append(drawn.unused_share())
    return HashBuckets(
        in_features,
        out_features,
        ratio,
        theory=tuple(math.exp(-1 / value) for value in ratio),
        measured_ratio=_MEASURED_RATIOS,
        independent=tuple(measured["independent"]),
        balanced=tuple(measured["balanced"]),
    )


def width_mult_adds(layers: int = 12) -> WidthMultAdds:
    """Mult-adds of one vector through a square map, and the width from which ACDC needs fewer than dense."""
    return WidthMultAdds(
        layers,
        width=_WIDTHS,
        dense=tuple(width * width for width in _WIDTHS),
        acdc=tuple(_acdc(width, layers) for width in _WIDTHS),
        acdc_published=tuple(_acdc_published(width, layers) for width in _WIDTHS),
        crossover=_crossover(_acdc, layers),
        crossover_published=_crossover(_acdc_published, layers),
    )


def _acdc(width: int, layers: int) -> int:
    """As counted, without what is done once a call."""
    return Acdc.mult_adds(width, width, layers, 2) - Acdc.mult_adds(width, width, layers, 1)


def _acdc_published(width: int, layers: int) -> int:
    """The paper's estimate, L (4N + 5N log2 N)."""
    return round(layers * (4 * width + 5 * width * math.log2(width)))


def _crossover(mult_adds: Callable[[int, int], int], layers: int) -> int | None:
    """The first width from which on the structure needs fewer mult-adds than N², in the range drawn."""
    dearer = [width for width in range(_WIDTHS[0], _WIDTHS[-1] + 1) if mult_adds(width, layers) >= width**2]
    first = dearer[-1] + 1 if dearer else _WIDTHS[0]
    return first if first <= _WIDTHS[-1] else None
