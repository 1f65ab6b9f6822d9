"""Sites + request → Plan: a transform and a knob for every site, so that the network meets one budget.

No tensor is made: planning is arithmetic on shapes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from understudy._util.quantities import format_count
from understudy.counting.trace import Example
from understudy.layers.opening import opened
from understudy.layers.replacement import Way
from understudy.transforms import get_transform

from .allocate import allocate
from .budget import Budget, BudgetError
from .plan import Plan, PlannedLayer
from .pricing import Pricing, dense_notes, left_alone
from .request import EVERYWHERE, Request, Spatial, TransformChoice
from .sites import Include, Site, Sites, sites
from .spend import Ladder, lowest_cost, spend, structured_cost, top_up
from .worth import Worth, choices

_UNITS = {"params": "parameters", "mult_adds": "mult-adds"}


def plan(
    model: nn.Module | Sites,
    transform: TransformChoice | None = None,
    *,
    params: int | str | None = None,
    mult_adds: int | str | None = None,
    ratio: float | str | None = None,
    scale: float | str | None = None,
    knob: int | str | None = None,
    example: Example | None = None,
    include: Include | None = None,
    exclude: Sequence[str] | None = None,
    spatial: Spatial = "auto",
    seed: int = 0,
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
    that names a site counts, and what none names stays dense.

    Exactly one budget is given: `params` or `mult_adds` of the whole network ("17.6M"), `ratio` of its
    parameters (0.1 or "10%"), a shared normalised `scale` in 0..1, or the `knob` itself. It is a ceiling:
    never exceeded, met as closely as one knob a layer allows, from the cheapest student up to the dense
    network. One below the cheapest student raises BudgetError. A layer that structure would save less than
    5 % of stays dense.

    A k×k convolution becomes a depthwise one and a structured pointwise one (`spatial="separable"`, as
    published, for students that will be trained), or keeps its shape with its unfolded weight structured
    (`spatial="unfolded"`, for trained weights); `"auto"` makes them separable where that can use the whole
    budget, and unfolds them where it cannot. Separable layers share the published normalised knob, others one
    share of their dense cost.

    `example` is an input or its shape, needed to count mult-adds; `include` and `exclude` are as for `sites`,
    whose result may stand for the model. `options` are the transform's own, such as
    `{"indexing": "independent"}`. `seed` decides what is drawn: fresh weights and fixed random indices, for
    every layer its own. `meta=False` runs the example on a real copy of the network instead of one without
    weights, for networks that look at values. A `request` says all of this in one record instead.

    With a `calibration` of the trained `model` (see `calibrate`) the budget is spent where the network's
    outputs lose least by it, and with `spatial="auto"` convolutions are unfolded.
    """
    if request is None:
        budget = Budget.of(params=params, mult_adds=mult_adds, ratio=ratio, scale=scale, knob=knob)
        if transform is None:
            raise ValueError("name a transform, such as plan(model, 'low_rank', ratio=0.5)")
        patterns = () if include is None or callable(include) else include
        request = Request.of(
            transform, budget, spatial=spatial, include=patterns, exclude=exclude, options=options, seed=seed
        )
    elif transform is not None or any(
        value is not None for value in (params, mult_adds, ratio, scale, knob, include, exclude, options)
    ):
        raise ValueError("a request says everything: give it alone, or what it is made of")
    survey = _survey(model, example, request, include if callable(include) else None, meta=meta)
    whole = dataclasses.replace(request, include=survey.include, exclude=survey.exclude)
    if calibration is not None:
        if not isinstance(model, nn.Module):
            raise TypeError("a plan with a calibration needs the trained network itself, not its sites")
        return _Planner(survey, whole, _Knowledge(opened(model), calibration)).plan()
    return _Planner(survey, whole).plan()


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
    elif isinstance(model, nn.Module):
        include = predicate or request.include or None
        survey = sites(model, example, include=include, exclude=request.exclude or None, meta=meta)
    else:
        raise TypeError(
            f"model is a {type(model).__name__}, not a torch.nn.Module: create_model() makes one by name"
        )
    if not survey.chosen:
        reasons = sorted({site.skip for site in survey.items if site.skip})[:3]
        raise ValueError(
            f"{survey.model} has no site to substitute ({'; '.join(reasons) or 'no weight matrix'})"
        )
    return survey


@dataclasses.dataclass(frozen=True)
class _Knowledge:
    """A trained network, and what its layers are worth."""

    model: nn.Module
    worth: Worth


@dataclasses.dataclass(frozen=True)
class _Planner:
    """One network and what is asked for it."""

    survey: Sites
    request: Request
    knowledge: _Knowledge | None = None

    def plan(self) -> Plan:
        budget = self.request.budget
        if budget is None or not self.request.transform:
            raise ValueError("a plan needs a transform and a budget")
        self._check_patterns()
        if budget.metric == "knob":
            return self.at_knob(int(budget.amount))
        if budget.metric == "scale":
            return self.at_scale(budget.amount)
        if budget.metric == "mult_adds":
            return self.within("mult_adds", int(budget.amount))
        amount = budget.amount if budget.metric == "params" else budget.amount * self.survey.params
        return self.within("params", int(amount))

    def _check_patterns(self) -> None:
        for pattern, name in self.request.transform:
            if pattern != EVERYWHERE and not any(site.matches(pattern) for site in self.survey.chosen):
                raise ValueError(
                    f"the pattern {pattern!r} of {name} names no site that is substituted; "
                    f"{self.survey.nearest(pattern)}"
                )

    def transform_of(self, site: Site) -> str | None:
        """What the first pattern that names a site asks for."""
        return next((name for pattern, name in self.request.transform if site.matches(pattern)), None)

    def pricings(self, spatial: Spatial) -> dict[str, Pricing]:
        """The sites that a pattern names, by path."""
        made = {}
        for site in self.survey.chosen:
            name = self.transform_of(site)
            if name is not None:
                kernel_way: Way = "unfolded" if spatial == "unfolded" else "separable"
                way: Way = "pointwise" if site.area == 1 else kernel_way
                options = self.request.options_of(name)
                made[site.path] = Pricing(site, get_transform(name), way, self.request.seed, options)
        return made

    def within(self, metric: str, budget: int) -> Plan:
        """At most `budget` for the whole network."""
        whole = self.survey.params if metric == "params" else self.survey.mult_adds
        if whole is None:
            raise ValueError("a budget of mult-adds needs an example input: plan(..., example=x)")
        if self.knowledge is not None:
            return self.where_it_loses_least(self.knowledge, metric, budget, whole)
        spatial, remarks = self.spatial_for(metric, budget, whole)
        pricings = self.pricings(spatial)
        ladders, fixed = self.ladders(pricings, metric, whole, published=spatial == "separable")
        knobs = dict(zip(pricings, spend(ladders, fixed, budget), strict=True))
        notes = dense_notes(pricings, ladders, knobs, "the budget allows it")
        return self.assemble(pricings, knobs, notes, remarks)

    def where_it_loses_least(self, knowledge: _Knowledge, metric: str, budget: int, whole: int) -> Plan:
        """At most `budget`, spent where the network's outputs lose least."""
        pricings = self.pricings("separable" if self.request.spatial == "separable" else "unfolded")
        ladders, fixed = self.ladders(pricings, metric, whole, published=False)
        lowest = lowest_cost(ladders, fixed)
        if budget < lowest:
            raise BudgetError(self._below(metric, budget, lowest), lowest)
        options = [
            choices(pricing, metric, knowledge.model.get_submodule(path), knowledge.worth)
            for path, pricing in pricings.items()
        ]
        chosen = allocate(options, budget - fixed)
        left = budget - fixed - sum(choice.cost for choice in chosen)
        knobs = dict(zip(pricings, top_up(ladders, [choice.knob for choice in chosen], left), strict=True))
        notes = dense_notes(pricings, ladders, knobs, "it loses most")
        return self.assemble(pricings, knobs, notes, ["spent where the network's outputs lose least"])

    def spatial_for(self, metric: str, budget: int, whole: int) -> tuple[Spatial, list[str]]:
        """How convolutions are treated so that the budget is met, and why; an error if nothing meets it."""
        ways: list[Spatial] = [self.request.spatial]
        if self.request.spatial == "auto":
            has_kernels = any(site.area > 1 for site in self.survey.chosen)
            ways = ["separable", "unfolded"] if has_kernels else ["unfolded"]
        reach: dict[Spatial, tuple[int, int]] = {}
        for way in ways:
            ladders, fixed = self.ladders(self.pricings(way), metric, whole, published=way == "separable")
            reach[way] = lowest_cost(ladders, fixed), structured_cost(ladders, fixed)
        lowest = min(low for low, _ in reach.values())
        if budget < lowest:
            raise BudgetError(self._below(metric, budget, lowest), lowest)
        structured = [way for way, (low, high) in reach.items() if low <= budget <= high]
        way = (structured or [way for way in reversed(ways) if reach[way][0] <= budget])[0]
        remarks = []
        if len(ways) > 1 and way == "unfolded":
            low, high = reach["separable"]
            side = f"at most {high:,}" if budget > high else f"at least {low:,}"
            remarks.append(f"convolutions unfolded: made separable the network has {side} {_UNITS[metric]}")
        if budget > reach[way][1] and budget < whole:
            remarks.append("some layers stay dense: structure alone does not use the whole budget")
        if budget >= whole:
            remarks.append("the dense network itself is within the budget")
        return way, remarks

    def ladders(
        self, pricings: Mapping[str, Pricing], metric: str, whole: int, *, published: bool
    ) -> tuple[list[Ladder], int]:
        """What each site may cost, and what all else costs."""
        replaced = sum(pricing.dense_cost(metric) for pricing in pricings.values())
        ladders = [pricing.ladder(metric, published=published) for pricing in pricings.values()]
        return ladders, whole - replaced

    def _below(self, metric: str, budget: int, lowest: int) -> str:
        """Why a budget cannot be met: the cheapest student, and what is in it that is not substituted."""
        unit = _UNITS[metric]
        text = (
            f"{self.request.label} on {self.survey.model}: {format_count(budget)} {unit} is below what is "
            f"reachable: {lowest:,}"
        )
        kept = [
            (site.params if metric == "params" else site.mult_adds or 0, site)
            for site in self.survey.items
            if site.skip
        ]
        held = sum(cost for cost, _ in kept)
        if held:
            largest = sorted(kept, key=lambda item: item[0], reverse=True)[:3]
            told = [f"{site.path} {format_count(cost)}, {site.skip}" for cost, site in largest if cost]
            text += f"; of these {held:,} lie in layers that are not substituted ({'; '.join(told)})"
        return text

    def at_scale(self, scale: float) -> Plan:
        """One normalised knob for all; a site where it would cost more than the dense layer has less."""
        pricings = self.pricings(self.request.spatial)
        knobs: dict[str, int | None] = {}
        notes: dict[str, str] = {}
        for path, pricing in pricings.items():
            legal = pricing.transform.knobs(*pricing.shape)
            most = pricing.affordable()
            if not most:
                knobs[path], notes[path] = None, f"stays dense: {pricing.why_dense()}"
                continue
            wanted = legal.index(pricing.transform.knob_at(*pricing.shape, scale))
            chosen = legal[min(wanted, most - 1)]
            knobs[path], notes[path] = chosen, pricing.warning(chosen)
        return self.assemble(pricings, knobs, notes, [])

    def at_knob(self, knob: int) -> Plan:
        """The same knob for all, or the nearest legal one."""
        pricings = self.pricings(self.request.spatial)
        knobs: dict[str, int | None] = {}
        notes: dict[str, str] = {}
        for path, pricing in pricings.items():
            try:
                nearest = pricing.transform.nearest_knob(*pricing.shape, knob)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
            name = pricing.transform.knob_name
            said = [f"{name} {nearest}, the nearest legal to {knob}"] if nearest != knob else []
            if pricing.params(nearest) > pricing.site.params:
                knobs[path] = None
                said.append(f"stays dense: {pricing.why_dense()}")
            else:
                knobs[path] = nearest
                said.append(pricing.warning(nearest))
            notes[path] = "; ".join(filter(None, said))
        return self.assemble(pricings, knobs, notes, [])

    def assemble(
        self,
        pricings: Mapping[str, Pricing],
        knobs: Mapping[str, int | None],
        notes: Mapping[str, str],
        remarks: Sequence[str],
    ) -> Plan:
        """The plan of these choices; what no pattern names stays dense."""
        layers = []
        for site in self.survey.chosen:
            if site.path in pricings:
                layers.append(pricings[site.path].layer(knobs[site.path], notes.get(site.path, "")))
            else:
                layers.append(left_alone(site))
        mult_adds = self.survey.mult_adds

        def whole(cost: Callable[[PlannedLayer], int | None]) -> int | None:
            """Mult-adds of the network: what is not a site stays as it was."""
            if mult_adds is None:
                return None
            return mult_adds + sum((cost(layer) or 0) - (layer.dense_mult_adds or 0) for layer in layers)

        return Plan(
            model=self.survey.model,
            request=self.request,
            dense_params=self.survey.params,
            params=self.survey.params + sum(layer.params - layer.dense_params for layer in layers),
            dense_mult_adds=mult_adds,
            mult_adds=whole(lambda layer: layer.mult_adds),
            ideal_mult_adds=whole(lambda layer: layer.ideal_mult_adds),
            matrix_mult_adds=whole(lambda layer: layer.matrix_mult_adds),
            layers=tuple(layers),
            remarks=tuple(remarks),
        )
