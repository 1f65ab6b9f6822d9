"""Which family for which layer: what the layers lose by themselves, corrected by what families lose in fact.

What an error is worth was measured as if what comes in and what goes out had nothing to do with each other. A
family that can push its errors into directions that seem to be worth little gains less by it than it seems.
So each family that a plan takes is tried alone at the same budget; by how much more its outputs lose than its
layers foretold is the price of all its losses when the plan is made again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from torch import nn

from understudy.layers.replacement import Way
from understudy.planning.budget import BudgetError
from understudy.planning.plan import Plan
from understudy.planning.worth import Worth
from understudy.transforms import Transform

from .attempts import Attempts
from .calibration import Calibration

_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Corrected:
    """What layers are worth, with the losses of some families multiplied; it remembers what it told."""

    worth: Worth
    factors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    told: dict[tuple[str, str, Way], dict[int, float]] = dataclasses.field(default_factory=dict)

    @property
    def paths(self) -> Sequence[str]:
        """As before."""
        return self.worth.paths

    @property
    def unreached(self) -> Sequence[str]:
        """As before."""
        return self.worth.unreached

    def losses(
        self,
        path: str,
        layer: nn.Module,
        transform: type[Transform],
        way: Way,
        knobs: Sequence[int],
        **options: str,
    ) -> list[float]:
        """As foretold, times the factor of the family; one that was not tried is taken to be the best."""
        factor = self.factors.get(transform.name, min(self.factors.values(), default=1.0))
        losses = self.worth.losses(path, layer, transform, way, knobs, **options)
        found = [factor * loss for loss in losses]
        self.told[path, transform.name, way] = dict(zip(knobs, found, strict=True))
        return found

    def of(self, plan: Plan) -> float:
        """What was told of the layers of a plan, in all, each at the nearest knob that was asked for."""
        total = 0.0
        for layer in plan:
            if layer.spec is not None:
                losses, wanted = self.told[layer.path, layer.spec.transform, layer.way], layer.spec.knob
                total += losses[min(losses, key=lambda knob, wanted=wanted: abs(knob - wanted))]  # type: ignore[misc]
        return total


@dataclasses.dataclass(frozen=True)
class Trials:
    """How plans are made, fitted and judged."""

    known: Calibration
    plan: Callable[[str | None, Worth], Plan]  # of one family, or as it was asked for; a BudgetError
    fitted: Callable[[Plan], nn.Module]
    attempts: Attempts

    def run(self) -> Plan:
        """The best of a plan of all families, and those of one family alone that were tried on the way."""
        mixed = self.plan(None, Corrected(self.known))
        factors: dict[str, float] = {}
        best: dict[float, Plan] = {}
        for _ in range(_ROUNDS):
            new = [name for name in mixed.transforms if name not in factors]
            if not new:
                break
            for name in new:
                factors[name] = self._tried(name, best)
            mixed = self.plan(None, Corrected(self.known, factors))
        self._judged("a family for each layer", mixed, best)
        return best[min(best)]

    def _tried(self, name: str, best: dict[float, Plan]) -> float:
        """How many times more than foretold the outputs lose by one family; 1 where that cannot be told."""
        worth = Corrected(self.known)
        try:
            plan = self.plan(name, worth)
        except BudgetError:
            return 1.0
        error = self._judged(f"{name} alone", plan, best)
        foretold, spread = worth.of(plan), self.attempts.spread
        return error * spread / foretold if foretold > 0 and spread > 0 else 1.0

    def _judged(self, name: str, plan: Plan, best: dict[float, Plan]) -> float:
        error, _ = self.attempts.judged(self.fitted(plan))
        self.attempts.note(f"planned with {name}", error, kept=error < min(best, default=float("inf")))
        best[error] = plan
        return error
