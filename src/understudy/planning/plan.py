"""A plan: what takes the place of each site, and what the network will then cost.

It is frozen, prints itself, and goes to JSON and back.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from understudy._util.quantities import format_count, format_share
from understudy._util.text_tables import render, table
from understudy.layers.replacement import Replacement
from understudy.transforms import find_transform

if TYPE_CHECKING:
    from rich.table import Table

Spatial = Literal["separable", "unfolded"]
_FORMAT, _VERSION = "understudy-plan", 1


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


@dataclasses.dataclass(frozen=True)
class Plan:
    """One transform and knob for every site, with the cost of the whole network once substituted."""

    model: str
    transform: str
    budget: str
    spatial: Spatial
    dense_params: int
    params: int
    dense_mult_adds: int | None
    mult_adds: int | None
    ideal_mult_adds: int | None
    matrix_mult_adds: int | None
    layers: tuple[PlannedLayer, ...]

    def __str__(self) -> str:
        return render(self.__rich__())

    def __rich__(self) -> Table:
        rows = []
        for layer in self.layers:
            window = "×".join(map(str, layer.kernel)) + " " if layer.kernel else ""
            knob = (
                "dense"
                if layer.spec is None
                else f"{find_transform(self.transform).knob_name} {layer.spec.knob}"
            )
            rows.append(
                (
                    layer.path or "(the network itself)",
                    f"{window}{layer.in_features} → {layer.out_features}",
                    layer.way if layer.spec else "–",
                    knob,
                    format_count(layer.params),
                    format_share(layer.params, layer.dense_params),
                    format_count(layer.mult_adds),
                    layer.note,
                )
            )
        return table(
            ["module", "shape", "way", "knob", ">parameters", ">of dense", ">mult-adds", "note"],
            rows,
            title=f"{self.transform} for {self.model}, {self.budget}",
            caption=self.summary(),
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
        return (
            json.dumps({"format": _FORMAT, "version": _VERSION, **dataclasses.asdict(self)}, indent=1) + "\n"
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """A plan from its JSON; a ValueError says what is wrong with any other text."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"not a plan: {error}") from error
        if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
            raise ValueError(f"not a plan: the field 'format' is not {_FORMAT!r}")
        version = data.pop("version", None)
        if version != _VERSION:
            raise ValueError(f"the plan has version {version!r}; this understudy reads version {_VERSION}")
        try:
            layers = tuple(PlannedLayer.from_dict(layer) for layer in data.pop("layers"))
            return cls(layers=layers, **data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a plan: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan that `save` wrote."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
