"""A sweep at a glance, for a terminal: what every cell will cost, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from understudy._util.quantities import format_bytes, format_count, format_share
from understudy._util.text_tables import Table
from understudy.results import Result

from .groups import problems_of
from .published import published_beside


def planned_overview(title: str, results: Sequence[Result]) -> Table:
    """Parameters and mult-adds of every cell, beside the published ones where there are any.

    >>> from understudy.experiments import load_grid, new_result, plan_cells
    >>> from understudy.report import planned_overview
    >>> results = [new_result("digits", planned) for planned in plan_cells(load_grid("digits"))]
    >>> planned_overview("Digits", results).rows[1][:3]
    ('low_rank-30k-at-crs-seed-0', '29,994', '305.2k')
    """
    columns = (
        "cell", ">parameters", ">mult-adds", ">ideal", ">dense matrices", ">published parameters",
        ">published mult-adds", "note",
    )  # fmt: skip
    return Table(
        columns,
        tuple(map(_planned, results)),
        f"{title}: {len(results)} cells",
        "mult-adds: as executed for one image, forming matrices included. ideal: that done ahead. "
        "dense matrices: had every structured matrix been stored dense, as the paper counts hashed and "
        "tensor_train. The paper also counts one for each output of a ReLU.",
    )


def _planned(result: Result) -> tuple[str, ...]:
    costs = result.planned
    if costs is None:
        return (result.name, *[""] * 6, f"unreachable: {result.status.reason}")
    paper = published_beside(result)
    return (
        result.name,
        f"{costs.params:,}",
        format_count(costs.mult_adds),
        format_count(costs.ideal_mult_adds),
        format_count(costs.matrix_mult_adds),
        format_count(paper.params) if paper else "",
        format_count(paper.mult_adds) if paper else "",
        result.network if result.role == "baseline" else "",
    )


def results_overview(title: str, results: Sequence[Result]) -> Table:
    """What came out, each beside the teacher of its own network.

    >>> from dataclasses import replace
    >>> from understudy.experiments import load_grid, new_result, plan_cells
    >>> from understudy.report import results_overview
    >>> from understudy.results import Costs, ErrorRates, Status
    >>> result = new_result("digits", plan_cells(load_grid("digits"))[1])
    >>> costs, errors = Costs(29_994, 305_152, 305_152, bytes=126_000), ErrorRates(4.2, 0.2, test_images=500)
    >>> done = replace(result, status=Status("finished"), costs=costs, errors=errors)
    >>> results_overview("Digits", [done]).rows[0][3:6]
    ('305.2k', '126.0 kB', '4.20 %')
    """
    columns = (
        "cell", ">parameters", ">of teacher", ">mult-adds", ">on disk", ">test error", ">images/s", ">ms",
        "note",
    )  # fmt: skip
    problems = problems_of(results)
    whole = {problems[result.name]: result.params for result in results if result.role == "teacher"}
    speed = next((result.speed for result in results if result.speed), None)
    caption = (
        f"images a second in batches of {speed.batch_size} and ms for one image; "
        f"{speed.threads} threads, best of several turns"
        if speed
        else ""
    )
    rows = tuple(_came_out(result, whole.get(problems[result.name])) for result in results)
    return Table(columns, rows, title, caption)


def _came_out(result: Result, whole: int | None) -> tuple[str, ...]:
    costs, errors, speed = result.costs, result.errors, result.speed
    if costs is None or errors is None:
        return (result.name, *[""] * 7, f"{result.status.state}: {result.status.reason}")
    return (
        result.name,
        f"{costs.params:,}",
        format_share(costs.params, whole),
        format_count(costs.mult_adds),
        format_bytes(costs.bytes),
        "" if errors.top1 is None else f"{errors.top1:.2f} %",
        f"{speed.images_per_second:,.0f}" if speed else "",
        f"{speed.latency_ms:.2f}" if speed else "",
        result.network if result.role == "baseline" else "",
    )
