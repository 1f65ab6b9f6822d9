"""A survey and a request → the knobs: what each site may cost, and how one budget is spent over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from understudy.layers.replacement import Way
from understudy.transforms import Transform
from understudy.transforms.registry import with_two_factors
from understudy.transforms.two_factors import TwoFactors

from .budget import TIMES, BudgetError, told
from .headers import FILE_HEADER
from .plan import Plan, PlannedLayer
from .pricing import Pricing, dense_notes, left_alone
from .request import AUTO, EVERYWHERE, Request, Spatial, candidates
from .sites import Site, Sites
from .spend import Ladder, lowest_cost, spend, structured_cost
from .telling import below, multiples, pace_remark, planned_time
from .times import MODELLED, Times
from .worth import Knowledge, affordable, pick


@dataclasses.dataclass(frozen=True)
class Planner:
    """One network and what is asked for it."""

    survey: Sites
    request: Request
    knowledge: Knowledge | None = None
    times: Times = MODELLED

    def plan(self) -> Plan:
        """The plan that meets the request, by the metric of its budget."""
        budget = self.request.budget
        if budget is None or not self.request.transform:
            raise ValueError("a plan needs a transform and a budget")
        self._check_patterns()
        if AUTO in self.request.transforms and self.knowledge is None:
            raise ValueError(
                "'auto' takes what loses least, which only data tell: us.compress(model, 'auto', …), or "
                "plan(…, calibration=us.calibrate(model, batches))"
            )
        if self.knowledge is not None and budget.metric in ("scale", "knob"):
            raise ValueError(
                f"a calibration says where to spend a budget: give params, mult_adds, bytes or ratio, "
                f"not {budget.metric}"
            )
        if budget.metric == "knob":
            return self.at_knob(int(budget.amount))
        if budget.metric == "scale":
            return self.at_scale(budget.amount)
        if budget.metric in ("mult_adds", "bytes"):
            return self.within(budget.metric, int(budget.amount))
        if budget.metric == "latency":
            return self.within("nanoseconds", int(budget.amount * self.times.original(self.survey)))
        if budget.metric == "milliseconds":
            return self.within("nanoseconds", int(1e6 * budget.amount))
        amount = budget.amount if budget.metric == "params" else budget.amount * self.survey.params
        return self.within("params", int(amount))

    def whole(self, metric: str) -> int:
        """What the network costs as it is, in bytes with the header of its file."""
        if metric == "params":
            return self.survey.params
        if metric == "bytes":
            return self.survey.bytes + self.survey.header_bytes + FILE_HEADER
        if metric == "nanoseconds":
            return self.times.whole(self.survey)
        if self.survey.mult_adds is None:
            raise ValueError("a budget of mult-adds needs an example input: plan(..., example=x)")
        return self.survey.mult_adds

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

    def pricings(self, spatial: Spatial, *, as_published: bool = False) -> dict[str, Pricing]:
        """The sites that a pattern names, by path.

        As published, every convolution is taken inside: a 1×1 kernel has taps too, which carry its stride.
        """
        made = {}
        for site in self.survey.chosen:
            name = self.transform_of(site)
            if name is not None:
                kernel_way: Way = "separable" if spatial == "auto" else spatial
                is_inside = spatial == "inside" and as_published and bool(site.kernel)
                way: Way = "pointwise" if site.area == 1 and not is_inside else kernel_way
                made[site.path] = self._pricing(site, candidates(name)[0], way)
        return made

    def _pricing(self, site: Site, transform: type[Transform], way: Way) -> Pricing:
        if way == "inside":
            try:
                with_two_factors(transform)
            except ValueError as error:
                raise ValueError(f"{site.path}: {error}") from error
        asked, options = self.request, self.request.options_of(transform)
        return Pricing(site, transform, way, asked.seed, options, asked.multiple, self.times)

    def candidates(self) -> dict[str, list[Pricing]]:
        """All ways to price the sites that a pattern names: every family and way for those left to choose."""
        made = {}
        for site in self.survey.chosen:
            name = self.transform_of(site)
            if name is not None:
                made[site.path] = [
                    self._pricing(site, transform, way)
                    for transform in candidates(name)
                    for way in self.ways(site, transform, is_auto=name == AUTO)
                ]
        return made

    def ways(self, site: Site, transform: type[Transform], *, is_auto: bool) -> list[Way]:
        """How a transform may stand for a site of a trained network; inside, where it has its own fit."""
        asked = self.request.spatial
        has_fit = issubclass(transform, TwoFactors) and transform.is_closed_inside
        ways: list[Way] = []
        if transform.is_for_auto or not is_auto:
            if site.area == 1:
                ways = ["pointwise"]
            elif asked != "auto":
                ways = [] if asked == "inside" and is_auto else [asked]
            else:
                ways = ["unfolded", "separable"] if is_auto else ["unfolded"]
        if has_fit and site.area > 1 and (asked == "auto" or (asked == "inside" and is_auto)):
            ways.append("inside")
        return ways

    def within(self, metric: str, budget: int) -> Plan:
        """At most `budget` for the whole network."""
        whole = self.whole(metric)
        if self.knowledge is not None:
            return self.where_it_loses_least(self.knowledge, metric, budget, whole)
        spatial, remarks = self.spatial_for(metric, budget, whole)
        pricings = self.pricings(spatial)
        ladders, fixed = self.ladders(pricings, metric, whole, published=spatial != "unfolded")
        knobs = dict(zip(pricings, spend(ladders, fixed, budget), strict=True))
        notes = dense_notes(pricings, ladders, knobs, "the budget allows it")
        return self.assemble(pricings, knobs, notes, remarks)

    def where_it_loses_least(self, knowledge: Knowledge, metric: str, budget: int, whole: int) -> Plan:
        """At most `budget`, spent where the network's outputs lose least."""
        tried, cut = affordable(self.candidates())
        fixed = whole - sum(pricings[0].dense_cost(metric) for pricings in tried.values())
        ladders = [[one.ladder(metric, published=False) for one in pricings] for pricings in tried.values()]
        lowest = fixed + sum(min(ladder.cost_at(0) for ladder in rungs) for rungs in ladders)
        if budget < lowest:
            raise self._unreachable(metric, budget, lowest)
        picked = pick(knowledge, tried, metric, budget - fixed)
        pricings = {path: one.pricing for path, one in picked.items()}
        knobs = {path: one.knob for path, one in picked.items()}
        chosen = [pricing.ladder(metric, published=False) for pricing in pricings.values()]
        remarks = ["spent where the network's outputs lose least"]
        unreached = [path for path in knowledge.worth.unreached if path in picked]
        if unreached:
            remarks.append(
                f"no gradient of the output came to {', '.join(unreached)}: what they lose counts for "
                "nothing; a function given as output_of takes another output, or several as one"
            )
        if cut:
            remarks.append(f"large layers, tried with the families of a closed form alone: {cut}")
        return self.assemble(pricings, knobs, dense_notes(pricings, chosen, knobs, "it loses most"), remarks)

    def _unreachable(self, metric: str, budget: int, lowest: int) -> BudgetError:
        label = self.request.label
        return BudgetError(below(label, self.survey, self.times, metric, budget, lowest), lowest)

    def spatial_for(self, metric: str, budget: int, whole: int) -> tuple[Spatial, list[str]]:
        """How convolutions are treated so that the budget is met, and why; an error if nothing meets it."""
        ways: list[Spatial] = [self.request.spatial]
        if self.request.spatial == "auto":
            has_kernels = any(site.area > 1 for site in self.survey.chosen)
            ways = ["separable", "unfolded"] if has_kernels else ["unfolded"]
        reach: dict[Spatial, tuple[int, int]] = {}
        for way in ways:
            ladders, fixed = self.ladders(self.pricings(way), metric, whole, published=way != "unfolded")
            reach[way] = lowest_cost(ladders, fixed), structured_cost(ladders, fixed)
        lowest = min(low for low, _ in reach.values())
        if budget < lowest:
            raise self._unreachable(metric, budget, lowest)
        structured = [way for way, (low, high) in reach.items() if low <= budget <= high]
        way = (structured or [way for way in reversed(ways) if reach[way][0] <= budget])[0]
        remarks = []
        if len(ways) > 1 and way == "unfolded":
            low, high = reach["separable"]
            side = f"at most {told(metric, high)}" if budget > high else f"at least {told(metric, low)}"
            verb = "take" if metric == "nanoseconds" else "have"
            remarks.append(
                f"convolutions keep their kernels whole (unfolded): separable ones would {verb} {side}"
            )
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
            chosen = pricing.rounded(legal[min(wanted, most - 1)])
            knobs[path], notes[path] = chosen, pricing.warning(chosen)
        return self.assemble(pricings, knobs, notes, [])

    def at_knob(self, knob: int) -> Plan:
        """The same knob for all, or the nearest legal one; taken inside, whatever it costs, as published."""
        pricings = self.pricings(self.request.spatial, as_published=True)
        knobs: dict[str, int | None] = {}
        notes: dict[str, str] = {}
        for path, pricing in pricings.items():
            try:
                nearest = pricing.transform.nearest_knob(*pricing.shape, knob)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error
            name = pricing.transform.knob_name
            said = [f"{name} {nearest}, the nearest legal to {knob}"] if nearest != knob else []
            if pricing.params(nearest) > pricing.site.params and pricing.way != "inside":
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

        said = multiples(layers, self.request.multiple), pace_remark(self.survey, layers, self.times)
        budget = self.request.budget
        is_of_time = budget is not None and budget.metric in TIMES
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
            remarks=(*remarks, *filter(None, said)),
            time=planned_time(self.survey, layers, self.times) if is_of_time else None,
        )
