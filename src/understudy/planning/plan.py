"""A plan: what takes the place of each site, and what the network will then cost.

It is frozen, prints itself, and goes to JSON and back.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from understudy._util.files import whole_file
from understudy._util.nearest import hint
from understudy._util.quantities import format_count, format_shape, format_share
from understudy._util.records import (
    ADDED,
    RecordError,
    as_table,
    from_plain,
    parse_json,
    read_table,
    to_plain,
)
from understudy._util.text_tables import Shown, Table
from understudy.layers.replacement import Replacement, depthwise_taps
from understudy.transforms import get_transform

from .planned_time import PlannedTime
from .request import Request

_FORMAT, _VERSION = "understudy-plan", 2
_EMPTY = to_plain(Request())


class PlanError(RecordError):
    """Content that is no plan."""


@dataclasses.dataclass(frozen=True)
class PlannedLayer(Replacement):
    """A replacement with the cost of its weight (not of the bias); no example, no mult-adds."""

    dense_params: int
    params: int
    dense_mult_adds: int | None
    mult_adds: int | None  # as executed for the example
    ideal_mult_adds: int | None  # with all that does not depend on the input done ahead
    matrix_mult_adds: int | None  # had the matrix been stored dense
    note: str

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """in × out of the structured matrix, of one group."""
        return self.matrix_in_features, self.out_features // self.groups

    @property
    def setting(self) -> str:
        """`rank 8`, or `dense`."""
        return (
            "dense"
            if self.spec is None
            else f"{get_transform(self.spec.transform).knob_name} {self.spec.knob}"
        )

    def check_counts(self) -> None:
        """Raise ValueError unless the parameters are those of the shape, and no count is below 0.

        A weight that is normed may have as many norms as entries beside it, which a stand-in has not.
        """
        dense = self.out_features * (self.in_features // self.groups) * math.prod(self.kernel)
        if dense <= self.dense_params <= 2 * dense:
            dense = self.dense_params
        params = dense
        if self.spec is not None:
            made, shape, knob = get_transform(self.spec.transform), self.matrix_shape, self.spec.knob
            area = math.prod(self.kernel)
            taps = depthwise_taps(made, self.way, shape, knob, groups=self.groups, area=area)
            params = taps + self.groups * made.params(*shape, knob)
        if (self.dense_params, self.params) != (dense, params):
            told = f"{self.params} of {self.dense_params}"
            raise ValueError(f"{self.path!r} has {params} of {dense} parameters, not {told}")
        _refuse_negative(self)


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Shown):
    """A transform and a knob for every site, with the cost of the whole network once substituted.

    Iterating gives its layers; `plan["stage1.0.conv1"]` is one of them.

    >>> import understudy as us
    >>> plan = us.plan(us.create_model("wrn_16_2"), "low_rank", ratio=0.5)
    >>> print(plan.summary())
    345,818 parameters, 50.0 % of 691,674
    >>> plan["stage1.0.conv1"].spec.knob
    14
    """

    model: str
    request: Request
    dense_params: int
    params: int
    dense_mult_adds: int | None
    mult_adds: int | None
    ideal_mult_adds: int | None
    matrix_mult_adds: int | None
    layers: tuple[PlannedLayer, ...]
    remarks: tuple[str, ...] = ()  # what holds for the whole plan, such as why convolutions are unfolded
    time: PlannedTime | None = dataclasses.field(
        default=None, metadata=ADDED
    )  # where the budget is one of time

    @property
    def transforms(self) -> tuple[str, ...]:
        """The transforms that the layers have, each once."""
        return tuple(dict.fromkeys(layer.spec.transform for layer in self.layers if layer.spec))

    def __iter__(self) -> Iterator[PlannedLayer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, path: str) -> PlannedLayer:
        for layer in self.layers:
            if layer.path == path:
                return layer
        raise KeyError(
            f"the plan has no layer {path!r}{hint(str(path), [layer.path for layer in self.layers])}"
        )

    def __contains__(self, path: object) -> bool:
        return any(layer.path == path for layer in self.layers)

    def __repr__(self) -> str:
        return (
            f"<Plan: {self.title}; {self.params:,} of {self.dense_params:,} parameters, {len(self)} layers>"
        )

    @property
    def title(self) -> str:
        """What was planned, for what, under which budget."""
        return f"{self.request.label} for {self.model}, {self.request.budget}"

    def table(self) -> Table:
        """A row for every layer."""
        several = len(self.transforms) > 1
        rows = [
            (
                layer.path or "(the network itself)",
                format_shape(layer.kernel, layer.in_features, layer.out_features, layer.groups),
                layer.way if layer.spec else "–",
                *((layer.spec.transform if layer.spec else "–",) if several else ()),
                layer.setting,
                format_count(layer.params),
                format_share(layer.params, layer.dense_params),
                format_count(layer.mult_adds),
                layer.note,
            )
            for layer in self.layers
        ]
        transform = ("transform",) if several else ()
        return Table(
            ("module", "shape", "way", *transform, "knob", ">params", ">of dense", ">mult-adds", "note"),
            tuple(rows),
            title=self.title,
            caption="\n".join(
                (self.summary(), *(() if self.time is None else (str(self.time),)), *self.remarks)
            ),
            yielding=("note", "of dense", "way"),
        )

    def summary(self) -> str:
        """The network's cost before and after, in one line."""
        share = format_share(self.params, self.dense_params)
        text = f"{self.params:,} parameters, {share} of {self.dense_params:,}"
        if self.mult_adds is not None:
            share = format_share(self.mult_adds, self.dense_mult_adds)
            text += (
                f"; {format_count(self.mult_adds)} mult-adds, {share} of {format_count(self.dense_mult_adds)}"
            )
            text += f" (ideal {format_count(self.ideal_mult_adds)}, "
            text += f"with dense matrices {format_count(self.matrix_mult_adds)})"
        return text

    def to_json(self) -> str:
        """The plan as JSON."""
        content = dataclasses.asdict(self) | {"request": self.request.to_dict()}
        if self.time is None:
            del content["time"]
        return json.dumps({"format": _FORMAT, "version": _VERSION, **content}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """A plan from its JSON; a PlanError says what is wrong with any other text."""
        try:
            return _read(as_table(parse_json(text)))
        except RecordError as error:
            raise PlanError(f"not a plan: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all."""
        with whole_file(path) as temporary:
            temporary.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that `save` wrote."""
        try:
            return _read(read_table(Path(path)))
        except RecordError as error:
            told = str(error).removeprefix(f"{path}: ")
            raise PlanError(f"{path}: not a plan: {told}") from error


def _read(content: dict[str, Any]) -> Plan:
    """A plan from its table, all of it checked."""
    if content.pop("format", None) != _FORMAT:
        raise RecordError(f"the field 'format' is not {_FORMAT!r}")
    version = content.pop("version", None)
    if type(version) is not int or version != _VERSION:
        raise RecordError(
            f"the plan has version {str(version)[:20]}; this understudy reads version {_VERSION}"
        )
    request = content.get("request")
    try:
        asked = Request.from_dict(request if isinstance(request, dict) else {"request": request})
    except ValueError as error:
        raise RecordError(f"request: {error}") from error
    # A request is written as people write one: its transforms and options as tables.
    plan = from_plain(Plan, {**content, "request": _EMPTY} if "request" in content else content)
    plan = dataclasses.replace(plan, request=asked)
    try:
        _check(plan)
    except ValueError as error:
        raise RecordError(str(error)) from error
    return plan


def _check(plan: Plan) -> None:
    """A ValueError unless its layers can be, each once, and its counts follow from theirs."""
    [*_, (path, count)] = collections.Counter(layer.path for layer in plan).most_common(1) or [("", 1)]
    if count > 1:
        raise ValueError(f"{count} layers have the path {path!r}")
    for layer in plan:
        layer.check_spec()
        layer.check_counts()
    params = plan.dense_params - sum(layer.dense_params - layer.params for layer in plan)
    if plan.params != params:
        raise ValueError(f"params is {plan.params}, but its layers give {params}")
    _refuse_negative(plan)


def _refuse_negative(costs: Plan | PlannedLayer) -> None:
    for name in (
        "dense_params",
        "params",
        "dense_mult_adds",
        "mult_adds",
        "ideal_mult_adds",
        "matrix_mult_adds",
    ):
        if (getattr(costs, name) or 0) < 0:
            raise ValueError(f"{name} is {getattr(costs, name)}, below 0")
