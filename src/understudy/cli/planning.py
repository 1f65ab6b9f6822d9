"""What a network holds and what it would cost: transforms, sites, plan, cost."""

from __future__ import annotations

import inspect
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from understudy._util.files import whole_file
from understudy._util.text_tables import table
from understudy.counting.trace import Example
from understudy.networks.models import create_model, example_input, weightless
from understudy.planning.budget import TIMES, Budget
from understudy.planning.compare import Comparison, compare
from understudy.planning.plan import Plan
from understudy.planning.planner import plan as make_plan
from understudy.planning.request import Request
from understudy.planning.sites import sites as find_sites
from understudy.students.cost import cost as count_cost
from understudy.students.substitute import substitute
from understudy.transforms import known_transforms

from .common import app, assignment, pairs, show, sizes
from .output import say

_MOST_TIMED = 1 << 31  # bytes of a network that is made for it


class SpatialChoice(str, Enum):
    """How a k×k convolution is treated."""

    auto = "auto"
    separable = "separable"
    inside = "inside"
    unfolded = "unfolded"


Model = Annotated[
    str,
    typer.Argument(
        help="A built-in name (wrn_28_10, wrn_50_2, darts, resnet56, …), timm:NAME, torchvision:NAME, "
        "transformers:NAME or package.module:factory.",
        show_default=False,
    ),
]
Input = Annotated[
    str | None,
    typer.Option(
        "--input",
        help="Shape of one input, such as 3,224,224; for text the length, such as 128.",
        show_default=False,
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        help="Only modules whose path or type matches this pattern; may be repeated.", show_default=False
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="No module whose path or type matches this pattern; may be repeated.", show_default=False
    ),
]
Spatial = Annotated[
    SpatialChoice,
    typer.Option(
        help="A k×k convolution becomes a depthwise and a structured pointwise one (separable), a depthwise "
        "one between the two factors of a structured one (inside), or keeps its shape with a structured "
        "weight (unfolded); auto takes separable or unfolded, the first that can use the whole budget."
    ),
]


@app.command()
def transforms(
    markdown: Annotated[bool, typer.Option("--markdown", help="As a table of Markdown.")] = False,
) -> None:
    """List the structured linear maps: what W is, what the knob counts, what it costs."""
    rows = []
    for name, transform in known_transforms().items():
        mathematics, _, rest = (inspect.getdoc(transform) or "").partition("\n")
        cost_line = next((line for line in rest.splitlines() if line.startswith("Cost: ")), "")
        rows.append((name, transform.knob_name, mathematics, cost_line.removeprefix("Cost: ")))
    head = ("transform", "knob", "W, out × in", "cost")
    if markdown:
        quoted = [(f"`{name}`", *rest) for name, *rest in rows]
        for cells in (head, ("---",) * len(head), *quoted):
            say(f"| {' | '.join(cells)} |")
        return
    show(table(head, rows))


@app.command()
def sites(model: Model, input: Input = None, include: Include = None, exclude: Exclude = None) -> None:
    """Show what can be substituted in MODEL, what it costs now, and why the rest is passed over."""
    network, example = _network(model, input)
    show(find_sites(network, example, include=include, exclude=exclude))


@app.command()
def plan(
    model: Model,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            "--transform",
            "-t",
            help="Which transform (see `understudy transforms`), or PATTERN=NAME for the modules that a "
            "pattern names by path or type, such as 'Linear=shuffle'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(
            help="At most so many parameters in the whole network, such as 17.6M.", show_default=False
        ),
    ] = None,
    mult_adds: Annotated[
        str | None,
        typer.Option(
            help="At most so many mult-adds in the whole network, such as 0.5G.", show_default=False
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--bytes", help="At most so many bytes in the student's file, such as 4MB.", show_default=False
        ),
    ] = None,
    ratio: Annotated[
        str | None,
        typer.Option(
            help="At most this share of the network's parameters, such as 0.1 or 10%.", show_default=False
        ),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="One normalised setting in 0..1 for all layers.", show_default=False)
    ] = None,
    knob: Annotated[
        str | None, typer.Option(help="One knob (rank, groups, …) for all layers.", show_default=False)
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            help="At most this time of one pass: a share of the network's, such as 0.5, or 5ms. The network "
            "is timed on this machine, the student modelled from that; with --all both are modelled alone.",
            show_default=False,
        ),
    ] = None,
    all_transforms: Annotated[bool, typer.Option("--all", help="Every transform side by side.")] = False,
    spatial: Spatial = SpatialChoice.auto,
    input: Input = None,
    include: Include = None,
    exclude: Exclude = None,
    seed: Annotated[int, typer.Option(help="Seed of fixed random choices and fresh weights.")] = 0,
    multiple: Annotated[
        int,
        typer.Option(
            help="Ranks above this are multiples of it, such as 8; other knobs are left alone.", min=1
        ),
    ] = 1,
    option: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the transform, such as indexing=independent.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the plan to this file.", show_default=False)
    ] = None,
) -> None:
    """Choose a knob for every layer so that MODEL meets a budget; nothing is trained.

    No weight is made either, but for --latency, which times MODEL unless it takes more than 2 GB.
    """
    if (transform is None) != all_transforms:
        raise ValueError("give either --transform NAME or --all")
    budget = Budget.of(
        params=params,
        mult_adds=mult_adds,
        bytes=size,
        ratio=ratio,
        scale=scale,
        knob=knob,
        latency=latency,
    )
    options = pairs("--option", option or [])
    network, example = _network(model, input)
    survey = find_sites(network, example, include=include, exclude=exclude)
    made: Plan | Comparison
    if transform is not None:
        chosen = assignment(transform)
        request = Request.of(
            chosen,
            budget,
            spatial=spatial.value,
            include=include,
            exclude=exclude,
            options=options,
            seed=seed,
            multiple=multiple,
        )
        if budget.metric in TIMES and survey.bytes <= _MOST_TIMED:
            made = make_plan(create_model(model), request=request, example=example)
        else:
            made = make_plan(survey, request=request)
    else:
        if multiple > 1:
            raise ValueError("--multiple is for one transform, not for --all")
        made = compare(survey, budget=budget, spatial=spatial.value, options=options, seed=seed, name=model)
    if json_file is not None:  # before it is shown: whoever reads the table may stop reading
        with whole_file(json_file) as temporary:
            temporary.write_text(made.to_json(), encoding="utf-8")
    show(made)


@app.command()
def cost(
    model: Model,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Substitute by this plan first.", show_default=False)
    ] = None,
    input: Input = None,
) -> None:
    """Count parameters, mult-adds and bytes on disk of MODEL, layer by layer, by tracing what runs."""
    network, example = _network(model, input)
    if plan_file is not None:
        network = substitute(network, Plan.load(plan_file), init="fresh")
    show(count_cost(network, example))


def _network(name: str, shape: str | None) -> tuple[nn.Module, Example]:
    with weightless(name):
        network = create_model(name)
    return network, example_input(name, network, None if shape is None else sizes(shape))
