"""Sites + request → Plan: a transform and a knob for every site, so that the network meets one budget.

No tensor is made, but where a calibration tells what the layers of a trained network lose.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from understudy.counting.trace import Example
from understudy.layers.opening import opened

from .budget import TIMES, Budget
from .plan import Plan
from .request import Request, Spatial, TransformChoice
from .sites import Include, Site, Sites, sites
from .solve import Planner
from .stopwatch import can_be_measured, time_pass
from .times import MODELLED, MeasuredTimes, Times
from .worth import Knowledge, Worth


def plan(
    model: nn.Module | Sites,
    transform: TransformChoice | None = None,
    *,
    params: int | str | None = None,
    mult_adds: int | str | None = None,
    bytes: int | str | None = None,
    ratio: float | str | None = None,
    scale: float | str | None = None,
    knob: int | str | None = None,
    latency: float | str | None = None,
    example: Example | None = None,
    include: Include | None = None,
    exclude: Sequence[str] | None = None,
    spatial: Spatial = "auto",
    seed: int = 0,
    multiple: int = 1,
    options: Mapping[str, str] | None = None,
    meta: bool = True,
    calibration: Worth | None = None,
    request: Request | None = None,
) -> Plan:
    """Choose a transform and a knob for every site of `model` so that the whole network meets one budget.

    >>> import understudy as us
    >>> model = us.create_model("wrn_16_2")
    >>> us.plan(model, "low_rank", ratio=0.5)
    <Plan: low_rank for WideResNet, at most 50 % of the parameters; 345,818 of 691,674 parameters, 15 layers>
    >>> us.plan(model, {"*.conv1": "shuffle", "*.conv2": "low_rank"}, params="100k").transforms
    ('shuffle', 'low_rank')

    `transform` is a name or a class, or a mapping from patterns, as for `sites`, to them: the first pattern
    that names a site counts, and what none names stays dense. "auto", with a `calibration`, takes for each
    layer the family and the way that lose least.

    Exactly one budget is given: `params`, `mult_adds` or `bytes` on disk of the whole network ("17.6M"),
    `ratio` of its parameters (0.1 or "10%"), a shared normalised `scale` in 0..1, or the `knob` itself. It is
    a ceiling: never exceeded, met as closely as one knob a layer allows, from the cheapest student up to the
    dense network. One below the cheapest student raises BudgetError. A layer that structure would save less
    than 5 % of stays dense.

    `latency` is a budget of time in inference, a share of what the network takes now (0.5) or a time ("5ms").
    With a network and an `example` on the CPU the network is timed on this machine, and of every kind of
    layer a few stand-ins beside it, which takes a few seconds at most but for very large networks; what is
    not substituted keeps its time, and the student's is modelled from all that. `plan.time` has the numbers;
    planned again they differ by the machine's noise. Where there is nothing to time, from `sites` or without
    weights, time is modelled alone, from calls, mult-adds and values moved. A plan whose stand-ins will be
    slower than what they stand for, or about as quick, says so in its remarks.

    A k×k convolution becomes a depthwise one and a structured pointwise one (`spatial="separable"`, as
    published, for students that will be trained), a depthwise one between the two factors of a structured
    pointwise one (`spatial="inside"`, as the published ShuffleNet; by a `knob` all convolutions are), or
    keeps its shape with its unfolded weight structured (`spatial="unfolded"`, for trained weights); `"auto"`
    makes them separable where that can use the whole budget, and unfolds them where it cannot. Separable and
    inside, layers share the published normalised knob, others one share of their dense cost.

    With `multiple=8` ranks above eight are multiples of eight, which kernels run best; knobs that are no
    ranks, such as groups or numbers of weights, are left alone.

    `example` is an input or its shape, needed to count mult-adds and for time; `include` and `exclude` are as
    for `sites`, whose result may stand for the model. `options` are the transform's own, such as
    `{"indexing": "independent"}`. `seed` decides what is drawn: fresh weights and fixed random indices, for
    every layer its own. The example runs on a copy of the network without weights or, where it cannot, on a
    real one; `meta=False` takes a real one at once. A `request` says all of this in one record instead.

    With a `calibration` of the trained `model` (see `calibrate`) the budget is spent where the network's
    outputs lose least by it, and with `spatial="auto"` convolutions are unfolded or taken inside.
    """
    if request is None:
        budget = Budget.of(
            params=params,
            mult_adds=mult_adds,
            bytes=bytes,
            ratio=ratio,
            scale=scale,
            knob=knob,
            latency=latency,
        )
        if transform is None:
            raise ValueError("name a transform, such as plan(model, 'low_rank', ratio=0.5)")
        patterns = () if include is None or callable(include) else include
        request = Request.of(
            transform,
            budget,
            spatial=spatial,
            include=patterns,
            exclude=exclude,
            options=options,
            seed=seed,
            multiple=multiple,
        )
    elif transform is not None or any(
        value is not None
        for value in (params, mult_adds, bytes, ratio, scale, knob, latency, include, exclude, options)
    ):
        raise ValueError("a request says everything: give it alone, or what it is made of")
    predicate = include if callable(include) else None
    if isinstance(include, Sequence) and not include:
        predicate = _nothing
    survey = _survey(model, example, request, predicate, meta=meta)
    is_free = example is None and include is None and not (request.include or request.exclude)
    if calibration is not None and is_free and isinstance(model, nn.Module):
        # It has seen in which order layers run, and so which is the last one.
        known = set(calibration.paths)
        chosen = {site.path for site in survey.chosen}
        if len(chosen - known) == len(known - chosen) == 1 and known <= {site.path for site in survey.items}:
            survey = _survey(model, None, request, lambda site: site.path in known, meta=meta)
    whole = dataclasses.replace(request, include=survey.include, exclude=survey.exclude)
    if calibration is not None:
        if not isinstance(model, nn.Module):
            raise TypeError("a plan with a calibration needs the trained network itself, not its sites")
        knowledge = Knowledge(opened(model), calibration)
        return Planner(survey, whole, knowledge, _times(model, example, survey, request)).plan()
    return Planner(survey, whole, times=_times(model, example, survey, request)).plan()


def _times(model: nn.Module | Sites, example: Example | None, survey: Sites, request: Request) -> Times:
    """Measured, where time is asked for and there is something to measure; else modelled alone."""
    is_of_time = request.budget is not None and request.budget.metric in TIMES
    if not is_of_time or example is None or isinstance(model, Sites) or not can_be_measured(model):
        return MODELLED
    network = opened(model)
    taken = time_pass(model, network, example, [site.path for site in survey.chosen])
    return MeasuredTimes(network, taken, survey)


def _nothing(_: Site) -> bool:
    """What an empty list names."""
    return False


def _survey(
    model: nn.Module | Sites,
    example: Example | None,
    request: Request,
    predicate: Callable[[Site], bool] | None,
    *,
    meta: bool,
) -> Sites:
    """The sites of a model under a request, or those that stand for it."""
    if isinstance(model, Sites):
        asked = (request.include or model.include, request.exclude or model.exclude)
        if example is not None or predicate is not None or asked != (model.include, model.exclude):
            raise ValueError("example, include and exclude belong to the call of sites()")
        survey = model
    else:
        include = predicate or request.include or None
        survey = sites(model, example, include=include, exclude=request.exclude or None, meta=meta)
    if not survey.chosen:
        reasons = sorted({site.skip for site in survey.items if site.skip})[:3]
        raise ValueError(
            f"{survey.model} has no site to substitute ({'; '.join(reasons) or 'no weight matrix'})"
        )
    return survey
