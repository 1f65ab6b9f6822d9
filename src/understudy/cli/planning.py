"""What a network holds and what it would cost: transforms, sites, plan, cost."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

from understudy._util.quantities import format_count, format_share
from understudy._util.text_tables import table
from understudy.counting.trace import Example
from understudy.networks import nets
from understudy.networks.models import create_model, example_input
from understudy.planning.budget import BudgetError
from understudy.planning.plan import Plan
from understudy.planning.planner import plan as make_plan
from understudy.planning.sites import sites as find_sites
from understudy.students.cost import cost as count_cost
from understudy.students.substitute import substitute
from understudy.transforms import known_transforms

from .common import app, pairs, show


class SpatialChoice(str, Enum):
    """The two ways to treat a k×k convolution."""

    separable = "separable"
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
Spatial = Annotated[SpatialChoice, typer.Option(help="How a k×k convolution is substituted.")]


@app.command()
def transforms() -> None:
    """List the structured linear maps: what W is, what the knob counts, what it costs."""
    rows = []
    for name, transform in known_transforms().items():
        mathematics, _, rest = (inspect.getdoc(transform) or "").partition("\n")
        cost_line = next((line for line in rest.splitlines() if line.startswith("Cost: ")), "")
        rows.append((name, transform.knob_name, mathematics, cost_line.removeprefix("Cost: ")))
    show(table(["transform", "knob", "W, out × in", "cost"], rows))


@app.command()
def sites(model: Model, input: Input = None, include: Include = None, exclude: Exclude = None) -> None:
    """Show what can be substituted in MODEL, what it costs now, and why the rest is passed over."""
    network, example = _network(model, input)
    show(find_sites(network, example, include=include, exclude=exclude))


@app.command()
def plan(
    model: Model,
    transform: Annotated[
        str | None,
        typer.Option(
            "--transform", "-t", help="Which transform; see `understudy transforms`.", show_default=False
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
    ratio: Annotated[
        float | None,
        typer.Option(help="At most this share of the network's parameters, such as 0.1.", show_default=False),
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="One normalised setting in 0..1 for all layers.", show_default=False)
    ] = None,
    knob: Annotated[
        int | None, typer.Option(help="One knob (rank, groups, …) for all layers.", show_default=False)
    ] = None,
    all_transforms: Annotated[bool, typer.Option("--all", help="Every transform side by side.")] = False,
    spatial: Spatial = SpatialChoice.separable,
    input: Input = None,
    include: Include = None,
    exclude: Exclude = None,
    seed: Annotated[int, typer.Option(help="Seed of fixed random choices and fresh weights.")] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the transform, such as indexing=independent.", show_default=False),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the plan to this file.", show_default=False)
    ] = None,
) -> None:
    """Choose a knob for every layer so that MODEL meets a budget; nothing is trained, no weight is made."""
    if (transform is None) != all_transforms:
        raise ValueError("give either --transform NAME or --all")
    network, example = _network(model, input)
    survey = find_sites(network, example, include=include, exclude=exclude)
    wanted: dict[str, Any] = {
        "params": params,
        "mult_adds": mult_adds,
        "ratio": ratio,
        "scale": scale,
        "knob": knob,
        "spatial": spatial.value,
        "seed": seed,
        "options": pairs("--option", option or []),
    }
    if transform is not None:
        made = make_plan(survey, transform, **wanted)
        show(made)
        if json_file is not None:
            made.save(json_file)
        return
    plans: dict[str, Plan | str] = {}
    errors = []
    for name, known in known_transforms().items():
        own = {key: value for key, value in wanted["options"].items() if key in known.options}
        try:
            plans[name] = make_plan(survey, name, **(wanted | {"options": own}))
        except ValueError as error:
            plans[name] = str(error)
            errors.append(error)
    known_options = {key for known in known_transforms().values() for key in known.options}
    for key in wanted["options"]:
        if key not in known_options:
            raise ValueError(f"no transform has an option {key}")
    if len(errors) == len(plans) and not any(isinstance(error, BudgetError) for error in errors):
        raise errors[0]
    _print_comparison(model, survey.params, survey.mult_adds, plans)
    if json_file is not None:
        records = {
            name: json.loads(p.to_json()) if isinstance(p, Plan) else {"unreachable": p}
            for name, p in plans.items()
        }
        json_file.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def _print_comparison(model: str, params: int, mult_adds: int | None, plans: dict[str, Plan | str]) -> None:
    rows = [("(as it is)", "", f"{params:,}", "100 %", *[format_count(mult_adds)] * 3, "")]
    for name, made in plans.items():
        if isinstance(made, str):
            rows.append((name, "", "", "", "", "", "", made.partition(": ")[2] or made))
            continue
        knobs = sorted({layer.spec.knob for layer in made.layers if layer.spec})
        dense = sum(layer.spec is None for layer in made.layers)
        rows.append(
            (
                name,
                f"{known_transforms()[name].knob_name} {knobs[0]}…{knobs[-1]}" if knobs else "",
                f"{made.params:,}",
                format_share(made.params, params),
                format_count(made.mult_adds),
                format_count(made.ideal_mult_adds),
                format_count(made.matrix_mult_adds),
                f"{dense} sites left dense" if dense else "",
            )
        )
    show(
        table(
            [
                "transform",
                "knobs",
                ">parameters",
                ">of dense",
                ">mult-adds",
                ">ideal",
                ">dense matrices",
                "note",
            ],
            rows,
            title=model,
            caption="mult-adds: as executed for one input, forming matrices included. "
            "ideal: with that done ahead. dense matrices: had every structured matrix been stored dense.",
        )
    )


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
    sizes = None
    if shape is not None:
        try:
            sizes = tuple(int(size) for size in shape.split(","))
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 1:
            raise ValueError(f"--input {shape!r} is not a shape such as 3,224,224")
    with _weightless(name):
        network = create_model(name)
    return network, example_input(name, network, sizes)


@contextmanager
def _weightless(name: str) -> Iterator[None]:
    """Built-in networks are made without weights; others may look at values while they are made."""
    with torch.device("meta" if nets.is_builtin(name) else "cpu"):
        yield
