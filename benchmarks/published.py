"""Plans at the paper's budgets beside its published counts: every transform on WRN-50-2, WRN-28-10 and DARTS.

    python benchmarks/published.py [--write]

Nothing is trained and no weight is made. Every student of WRN-50-2 is made without weights and traced: it has
and runs exactly what its plan says, or this stops. The paper's counter adds one for every ReLU output, ours
does not (docs/budgets.md); "with ReLU" is our count in its convention.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import understudy as us
from measure import write
from understudy._util.quantities import format_count
from understudy._util.text_tables import table
from understudy.counting.trace import Example
from understudy.report import published

# network → budgets, and what the paper's own counter excludes from substitution
BUDGETS = {
    "wrn_50_2": (("17.6M", "4.35M"), None),
    "wrn_28_10": (("2.4M", "1.2M", "0.6M"), ["*.shortcut"]),
    "darts": (("1.42M", "0.83M", "0.49M"), None),
}
# Linear ShuffleNet as the paper's code builds it: network, groups, published parameters and mult-adds
INSIDE = (
    ("wrn_50_2", 4, 6_040_000, 910_000_000),
    ("wrn_50_2", 1, 17_720_000, 3_220_000_000),
    ("wrn_28_10", 1, 2_384_154, 359_000_000),
)
CHECKED = "wrn_50_2"  # whose students are made, without weights, and traced
# WRN-50-2: parameters and mult-adds as published
PUBLISHED = {
    (point.transform, point.budget): (point.params, point.mult_adds)
    for point in published("wrn_50_2", "imagenet")
    if point.transform
}


class ReluOutputs(TorchDispatchMode):
    """Counts the elements that ReLU gives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.relu, torch.ops.aten.relu_):
            self.count += result.numel()
        return result


def relu_outputs(model: nn.Module, example: Example) -> int:
    assert isinstance(example, Tensor)
    with torch.no_grad(), ReluOutputs() as counter:
        model.eval()(example)
    return int(counter.count)


def check(model: nn.Module, plan: us.Plan, example: Example) -> None:
    """Stop unless the student of a plan has and runs exactly what the plan says."""
    cost = us.cost(us.substitute(model, plan), example)
    if (cost.params, cost.mult_adds) != (plan.params, plan.mult_adds):
        told = f"{plan.params:,} parameters and {plan.mult_adds:,} mult-adds"
        raise SystemExit(f"{plan} says {told}, its trace {cost.params:,} and {cost.mult_adds:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Plans at the paper's budgets beside its published counts.")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/published.json")
    arguments = parser.parse_args()
    networks: dict[str, Any] = {}
    for network, (budgets, exclude) in BUDGETS.items():
        start = time.perf_counter()
        with torch.device("meta"):
            model = us.create_model(network)
        example = us.example_input(network, model)
        survey = us.sites(model, example, exclude=exclude)
        cells, plans = [], []
        for budget in budgets:
            for name in us.list_transforms():
                cell: dict[str, Any] = {"transform": name, "budget": budget}
                try:
                    plan = us.plan(survey, name, params=budget)
                    cell |= {
                        "params": plan.params,
                        "mult_adds": plan.mult_adds,
                        "ideal_mult_adds": plan.ideal_mult_adds,
                        "matrix_mult_adds": plan.matrix_mult_adds,
                    }
                    plans.append(plan)
                except us.BudgetError as error:
                    cell["unreachable"] = str(error)
                if network == "wrn_50_2" and (name, budget) in PUBLISHED:
                    cell["published_params"], cell["published_mult_adds"] = PUBLISHED[name, budget]
                cells.append(cell)
        cells += [inside(survey, *row[1:]) for row in INSIDE if row[0] == network]
        seconds = time.perf_counter() - start
        for plan in plans if network == CHECKED else ():
            check(model, plan, example)
        relu = relu_outputs(model, example)
        networks[network] = {
            "params": survey.params,
            "mult_adds": survey.mult_adds,
            "relu_outputs": relu,
            "seconds_to_plan_all": round(seconds, 2),
            "traced": len(plans) if network == CHECKED else 0,  # students that were made and counted again
            "plans": cells,
        }
        show(network, networks[network])
    import resource  # of POSIX alone

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of this process: {peak:.0f} MB")
    if arguments.write:
        print(write("published", {"peak_memory_mb": round(peak), "networks": networks}))


def inside(survey: us.Sites, groups: int, params: int, mult_adds: int) -> dict[str, Any]:
    plan = us.plan(survey, "shuffle", knob=groups, spatial="inside")
    return {
        "transform": "shuffle, inside",
        "budget": f"groups {groups}",
        "params": plan.params,
        "mult_adds": plan.mult_adds,
        "ideal_mult_adds": plan.ideal_mult_adds,
        "matrix_mult_adds": plan.matrix_mult_adds,
        "published_params": params,
        "published_mult_adds": mult_adds,
    }


def show(network: str, result: dict[str, Any]) -> None:
    relu = result["relu_outputs"]
    rows = []
    for cell in result["plans"]:
        if "unreachable" in cell:
            rows.append((cell["budget"], cell["transform"], "out of reach", "", "", "", "", "", ""))
            continue
        mult_adds = cell.get("published_mult_adds")
        rows.append(
            (
                cell["budget"],
                cell["transform"],
                f"{cell['params']:,}",
                format_count(cell["mult_adds"]),
                format_count(cell["mult_adds"] + relu),
                format_count(cell["ideal_mult_adds"]),
                format_count(cell["matrix_mult_adds"]),
                format_count(cell["published_params"]) if mult_adds else "",
                format_count(mult_adds) if mult_adds else "",
            )
        )
    Console(width=140).print(
        table(
            [
                "budget",
                "transform",
                ">parameters",
                ">mult-adds",
                ">with ReLU",
                ">ideal",
                ">dense matrices",
                ">published parameters",
                ">published mult-adds",
            ],
            rows,
            title=f"{network}: {result['params']:,} parameters, {format_count(result['mult_adds'])} "
            f"mult-adds ({format_count(result['mult_adds'] + relu)} with ReLU)",
            caption=f"{len(rows)} plans in {result['seconds_to_plan_all']} s",
        )
    )


if __name__ == "__main__":
    main()
