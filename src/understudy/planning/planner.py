"""Sites + budget → Plan: a knob for every site, so that the whole network meets one budget.

No tensor is made: planning is arithmetic on shapes.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from torch import nn

from understudy._util.quantities import parse_count
from understudy.counting.trace import Example
from understudy.layers.replacement import Spec, Way, matrix_in_features
from understudy.transforms import Transform, find_transform

from .budget import BudgetError
from .plan import Plan, PlannedLayer, Spatial
from .sites import Site, Sites, sites
from .spend import Ladder, highest_within, spend

Metric = Literal["params", "mult_adds"]


def plan(
    model: nn.Module | Sites,
    transform: str,
    *,
    params: int | str | None = None,
    mult_adds: int | str | None = None,
    ratio: float | None = None,
    scale: float | None = None,
    knob: int | None = None,
    example: Example | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    spatial: Spatial = "separable",
    seed: int = 0,
    options: Mapping[str, str] | None = None,
    meta: bool = True,
) -> Plan:
    """Choose a knob for every site of `model` so that the whole network meets one budget.

    Exactly one of these is given: `params` or `mult_adds` of the whole network ("17.6M"), `ratio` of its
    parameters (0.1), a shared normalised `scale` in 0..1, or the `knob` itself. A budget is never exceeded
    and is met as closely as one knob a layer allows; one out of reach raises BudgetError with the range.

    A k×k convolution becomes a depthwise one and a structured pointwise one (`spatial="separable"`), or keeps
    its shape with its unfolded weight structured (`spatial="unfolded"`, for trained weights). A site where
    structure would cost more than the dense layer stays dense. `example` is an input, needed to count
    mult-adds; `include` and `exclude` are as for `sites`. The result of `sites` may stand for the model.
    """
    made = find_transform(transform)
    chosen_options = _check_options(made, options or {})
    if spatial not in get_args(Spatial):
        raise ValueError(f"spatial {spatial!r} is not one of {', '.join(get_args(Spatial))}")
    if not isinstance(model, nn.Module | Sites):
        raise TypeError(
            f"model is a {type(model).__name__}, not a torch.nn.Module: create_model() makes one by name"
        )
    if isinstance(model, Sites):
        if example is not None or include is not None or exclude is not None:
            raise ValueError("example, include and exclude belong to the call of sites()")
        survey = model
    else:
        survey = sites(model, example, include=include, exclude=exclude, meta=meta)
    if not survey.chosen:
        reasons = sorted({site.skip for site in survey.items if site.skip})[:3]
        raise ValueError(
            f"{survey.model} has no site to substitute ({'; '.join(reasons) or 'no weight matrix'})"
        )
    planner = _Planner(survey, made, spatial, seed, chosen_options)
    given = {"params": params, "mult_adds": mult_adds, "ratio": ratio, "scale": scale, "knob": knob}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ValueError(
            f"give exactly one of params, mult_adds, ratio, scale and knob; got {named or 'none'}"
        )
    if knob is not None:
        return planner.at_knob(knob)
    if scale is not None:
        if not 0 <= scale <= 1:
            raise ValueError(f"scale {scale!r} is not in 0..1")
        return planner.at_scale(scale)
    if mult_adds is not None:
        return planner.within("mult_adds", parse_count(mult_adds))
    if ratio is not None:
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio {ratio!r} is not in 0..1: it is a share of the network's parameters")
        return planner.within("params", int(ratio * survey.params))
    return planner.within("params", parse_count(params or 0))


def _check_options(transform: type[Transform], options: Mapping[str, str]) -> dict[str, str]:
    for name, value in options.items():
        legal = transform.options.get(name)
        if legal is None:
            known = ", ".join(transform.options) or "none"
            raise ValueError(f"{transform.name} has no option {name!r} (it has {known})")
        if value not in legal:
            raise ValueError(f"option {name} of {transform.name} is {value!r}, not one of {', '.join(legal)}")
    return dict(options)


@dataclasses.dataclass(frozen=True)
class _Planner:
    """Prices knobs for one network and transform."""

    survey: Sites
    transform: type[Transform]
    spatial: Spatial
    seed: int
    options: dict[str, str]

    def way(self, site: Site) -> Way:
        return "pointwise" if site.area == 1 else self.spatial

    def shape(self, site: Site) -> tuple[int, int]:
        """in × out of the structured matrix."""
        return matrix_in_features(self.way(site), site.in_features, site.kernel), site.out_features

    def taps(self, site: Site) -> int:
        """Parameters of the depthwise convolution, where there is one."""
        return site.in_features * site.area if self.way(site) == "separable" else 0

    def params(self, site: Site, knob: int) -> int:
        return self.taps(site) + self.transform.params(*self.shape(site), knob)

    def mult_adds(self, site: Site, knob: int) -> int:
        """As executed over all calls; where another module reads the weight, each read forms it."""
        assert site.positions is not None
        shape = self.shape(site)
        called = sum(
            self.transform.executed_mult_adds(*shape, knob, positions) + positions * self.taps(site)
            for positions in site.positions
        )
        return called + site.weight_reads * self.transform.forming_mult_adds(*shape, knob)

    def cost(self, metric: Metric, site: Site, knob: int) -> int:
        return self.params(site, knob) if metric == "params" else self.mult_adds(site, knob)

    def dense_cost(self, metric: Metric, site: Site) -> int:
        return site.params if metric == "params" else site.mult_adds or 0

    def ladder(self, metric: Metric, site: Site) -> Ladder | None:
        """The knobs that cost no more than the dense layer; None when there is none."""
        shape = self.shape(site)
        knobs = self.transform.knobs(*shape)
        top = highest_within(knobs, lambda knob: self.cost(metric, site, knob), self.dense_cost(metric, site))
        if top < 0:
            return None
        return Ladder(
            knobs,
            top,
            lambda knob: self.cost(metric, site, knob),
            lambda scale: self.transform.knob_at(*shape, scale),
        )

    def within(self, metric: Metric, budget: int) -> Plan:
        total = self.survey.params if metric == "params" else self.survey.mult_adds
        if total is None:
            raise ValueError("a budget of mult-adds needs an example input: plan(..., example=x)")
        ladders = {site.path: self.ladder(metric, site) for site in self.survey.chosen}
        used = [ladder for ladder in ladders.values() if ladder is not None]
        replaced = sum(
            self.dense_cost(metric, site) for site in self.survey.chosen if ladders[site.path] is not None
        )
        unit = "parameters" if metric == "params" else "mult-adds"
        try:
            knobs = iter(spend(used, total - replaced, budget, unit))
        except BudgetError as error:
            error.args = (f"{self.transform.name} on {self.survey.model}: {error}",)
            raise
        chosen = {path: None if ladder is None else next(knobs) for path, ladder in ladders.items()}
        return self.assemble(chosen, {}, f"at most {budget:,} {unit}")

    def at_scale(self, scale: float) -> Plan:
        chosen: dict[str, int | None] = {}
        for site in self.survey.chosen:
            ladder = self.ladder("params", site)
            chosen[site.path] = None if ladder is None else ladder.knobs[ladder.rung_at(scale)]
        return self.assemble(chosen, {}, f"scale {scale:g}")

    def at_knob(self, knob: int) -> Plan:
        chosen: dict[str, int | None] = {}
        notes: dict[str, str] = {}
        name = self.transform.knob_name
        for site in self.survey.chosen:
            try:
                nearest = self.transform.nearest_knob(*self.shape(site), knob)
            except ValueError as error:
                raise ValueError(f"{site.path}: {error}") from error
            chosen[site.path] = nearest if self.params(site, nearest) <= site.params else None
            if nearest != knob:
                notes[site.path] = f"{name} {nearest}, the nearest legal to {knob}"
        return self.assemble(chosen, notes, f"{name} {knob}")

    def assemble(self, knobs: Mapping[str, int | None], notes: Mapping[str, str], budget: str) -> Plan:
        layers = tuple(
            self.layer(site, knobs[site.path], notes.get(site.path, "")) for site in self.survey.chosen
        )

        def whole(field: str) -> int | None:
            """Mult-adds of the network: what is not a site stays as it was."""
            if self.survey.mult_adds is None:
                return None
            change: int = sum(getattr(layer, field) - (layer.dense_mult_adds or 0) for layer in layers)
            return self.survey.mult_adds + change

        return Plan(
            model=self.survey.model,
            transform=self.transform.name,
            budget=budget,
            spatial=self.spatial,
            dense_params=self.survey.params,
            params=self.survey.params + sum(layer.params - layer.dense_params for layer in layers),
            dense_mult_adds=self.survey.mult_adds,
            mult_adds=whole("mult_adds"),
            ideal_mult_adds=whole("ideal_mult_adds"),
            matrix_mult_adds=whole("matrix_mult_adds"),
            layers=layers,
        )

    def layer(self, site: Site, knob: int | None, note: str) -> PlannedLayer:
        shape = self.shape(site)
        spec = None
        params, executed, ideal, matrix = site.params, site.mult_adds, site.mult_adds, site.mult_adds
        notes = [note] if note else []
        if knob is None:
            refused = not self.transform.knobs(*shape)
            notes.append("left dense: " + ("shape refused" if refused else "structure would cost more"))
        else:
            spec = Spec(self.transform.name, knob, _layer_seed(self.seed, site.path), self.options)
            params = self.params(site, knob)
            if site.weight_reads:
                notes.append("another module reads its weight, which forms it")
            if site.positions is not None:
                positions = sum(site.positions)
                executed = self.mult_adds(site, knob)
                ideal = positions * (self.transform.ideal_mult_adds(*shape, knob) + self.taps(site))
                matrix = positions * (shape[0] * shape[1] + self.taps(site))
        return PlannedLayer(
            path=site.path,
            kind=site.kind,
            in_features=site.in_features,
            out_features=site.out_features,
            kernel=site.kernel,
            way=self.way(site),
            spec=spec,
            dense_params=site.params,
            params=params,
            dense_mult_adds=site.mult_adds,
            mult_adds=executed,
            ideal_mult_adds=ideal,
            matrix_mult_adds=matrix,
            note="; ".join(notes),
        )


def _layer_seed(seed: int, path: str) -> int:
    """A seed of its own for every layer, the same on every machine."""
    return zlib.crc32(f"{seed}:{path}".encode())
