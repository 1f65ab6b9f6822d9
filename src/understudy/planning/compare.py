"""Every transform under one budget, side by side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from torch import nn

from understudy._util.quantities import format_count, format_share
from understudy._util.text_tables import Shown, Table, table
from understudy.counting.trace import Example
from understudy.transforms import get_transform, known_transforms

from .budget import Budget, BudgetError
from .plan import Plan
from .planner import plan
from .request import Request, Spatial
from .sites import Include, Sites, sites


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """A plan for every transform, or the reason why there is none.

    >>> import understudy as us
    >>> beside = us.compare(us.create_model("wrn_16_2"), ratio=0.2)
    >>> beside.plans["low_rank"].params <= 0.2 * beside.params
    True
    """

    model: str
    budget: Budget
    params: int
    mult_adds: int | None
    plans: Mapping[str, Plan]
    refused: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """The transforms in the order of the registry."""
        return [name for name in known_transforms() if name in self.plans or name in self.refused]

    def __repr__(self) -> str:
        return f"<Comparison: {len(self.plans)} transforms for {self.model}, {self.budget}>"

    def table(self) -> Table:
        """A row for every transform, below the network as it is."""
        rows = [("(as it is)", "", "", f"{self.params:,}", "100 %", *[format_count(self.mult_adds)] * 3, "")]
        for name in self.names:
            plan = self.plans.get(name)
            rows.append(_refusal(name, self.refused[name]) if plan is None else _row(name, plan))
        return table(
            (
                "transform",
                "way",
                "knobs",
                ">parameters",
                ">of dense",
                ">mult-adds",
                ">ideal",
                ">dense matrices",
                "note",
            ),
            rows,
            title=f"{self.model}, {self.budget}",
            caption="mult-adds: as executed for one input, forming matrices included. "
            "ideal: with that done ahead. dense matrices: had every structured matrix been stored dense.",
            yielding=("note", "dense matrices", "ideal", "way"),
        )

    def to_json(self) -> str:
        """Every plan, and every reason."""
        content = {
            name: json.loads(self.plans[name].to_json())
            if name in self.plans
            else {"unreachable": self.refused[name]}
            for name in self.names
        }
        return json.dumps(content, indent=1) + "\n"


def compare(
    model: nn.Module | Sites,
    *,
    budget: Budget | None = None,
    params: int | str | None = None,
    mult_adds: int | str | None = None,
    bytes: int | str | None = None,
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
    name: str = "",
) -> Comparison:
    """Plan `model` with every known transform under one budget; all else is as for `plan`.

    A `budget` may be given as a record instead. An option goes to the transforms that have it; `name` is
    what to call the network. If no transform can be planned, and not for its budget, that is an error.

    >>> import understudy as us
    >>> us.compare(us.create_model("wrn_16_2"), ratio=0.2)
    <Comparison: ... transforms for WideResNet, at most 20 % of the parameters>
    """
    if budget is None:
        budget = Budget.of(
            params=params, mult_adds=mult_adds, bytes=bytes, ratio=ratio, scale=scale, knob=knob
        )
    survey = (
        model
        if isinstance(model, Sites)
        else sites(model, example, include=include, exclude=exclude, meta=meta)
    )
    wanted = dict(options or {})
    unknown = set(wanted) - {option for known in known_transforms().values() for option in known.options}
    if unknown:
        raise ValueError(f"no transform has an option {', '.join(sorted(unknown))}")
    plans: dict[str, Plan] = {}
    refused: dict[str, ValueError] = {}
    for transform, known in known_transforms().items():
        own = {key: value for key, value in wanted.items() if key in known.options}
        try:
            request = Request.of(transform, budget, spatial=spatial, options=own, seed=seed)
            plans[transform] = plan(survey, request=request)
        except ValueError as error:
            refused[transform] = error
    if not plans and not any(isinstance(error, BudgetError) for error in refused.values()):
        raise next(iter(refused.values()))
    return Comparison(
        name or survey.model,
        budget,
        survey.params,
        survey.mult_adds,
        plans,
        {transform: str(error) for transform, error in refused.items()},
    )


def _row(name: str, made: Plan) -> tuple[str, ...]:
    knobs = sorted({layer.spec.knob for layer in made if layer.spec})
    dense = sum(layer.spec is None for layer in made)
    ways = dict.fromkeys(layer.way for layer in made if layer.spec and layer.way != "pointwise")
    return (
        name,
        ", ".join(ways),
        f"{get_transform(name).knob_name} {knobs[0]}…{knobs[-1]}" if knobs else "",
        f"{made.params:,}",
        format_share(made.params, made.dense_params),
        format_count(made.mult_adds),
        format_count(made.ideal_mult_adds),
        format_count(made.matrix_mult_adds),
        f"{dense} of {len(made)} sites stay dense" if dense else "",
    )


def _refusal(name: str, reason: str) -> tuple[str, ...]:
    return (name, *[""] * 7, (reason.partition(": ")[2] or reason).partition("; of these")[0])
