"""How quick it is: bench."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from understudy._util.files import whole_file
from understudy._util.quantities import parse_count, parse_share
from understudy.bench.figure import figure
from understudy.bench.record import Cell, Done, Mode, Runtime
from understudy.bench.run import run
from understudy.bench.subjects import transform_of, way_of
from understudy.bench.suite import (
    BATCHES,
    FAMILIES,
    RUNTIMES,
    SHAPES,
    WIDTHS,
    layer_cells,
    network_cells,
    quick_cells,
    whole_suite,
)
from understudy.bench.tables import sections, table
from understudy.networks.models import create_model
from understudy.transforms import get_transform

from .common import app, show


class RuntimeChoice(str, Enum):
    """What runs a network."""

    eager = "eager"
    compiled = "compiled"
    onnx = "onnx"
    openvino = "openvino"


@app.command()
def bench(
    out: Annotated[
        Path,
        typer.Option(help="What is measured is added to this file; what it holds is not measured again."),
    ] = Path("bench.json"),
    quick: Annotated[bool, typer.Option("--quick", help="A few small cells.")] = False,
    layers: Annotated[bool, typer.Option("--layers", help="Layers alone, of every width.")] = False,
    network: Annotated[
        str | None,
        typer.Option(help="This network alone, as for plan, or vit or minilm.", show_default=False),
    ] = None,
    params: Annotated[
        str | None, typer.Option(help="At most so many parameters in its students.", show_default=False)
    ] = None,
    ratio: Annotated[
        str | None, typer.Option(help="Or at most this share of its parameters.", show_default=False)
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            "--transform",
            "-t",
            help="Which transforms, perhaps with a way, as low_rank:inside; may be repeated.",
            show_default=False,
        ),
    ] = None,
    widths: Annotated[
        list[int] | None,
        typer.Option("--width", help="Which widths of layers; may be repeated.", show_default=False, min=16),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Samples in a call; may be repeated.", show_default=False, min=1)
    ] = None,
    runtime: Annotated[
        list[RuntimeChoice] | None,
        typer.Option(help="Which runtimes, by default all; may be repeated.", show_default=False),
    ] = None,
    training: Annotated[bool, typer.Option("--training", help="A training step too, in eager mode.")] = False,
    seconds: Annotated[float, typer.Option(help="About so long for every cell.")] = 20.0,
    limit: Annotated[
        float | None,
        typer.Option(help="No new cell after so many seconds; the next call goes on.", show_default=False),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option("--figure", help="Draw speed-up against mult-adds to this SVG.", show_default=False),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Write the tables of the documentation to this file.", show_default=False),
    ] = None,
) -> None:
    """Time stand-ins beside what they stand for: layers and networks, each runtime in its own process."""
    asked = [
        name for name, given in (("--quick", quick), ("--layers", layers), ("--network", network)) if given
    ]
    if len(asked) > 1:
        raise ValueError(f"give one of --quick, --layers and --network; got {' and '.join(asked)}")
    if network is None and (params or ratio):
        raise ValueError("--params and --ratio are for one --network")
    if widths and not layers:
        raise ValueError("--width is for --layers")
    if not (layers or network) and (transform or batch or training or (quick and runtime)):
        raise ValueError("--transform, --batch, --training and --runtime are for --layers or one --network")
    if params and ratio:
        raise ValueError("give one of --params and --ratio")
    names = [_asked(name) for name in transform] if transform else None
    runtimes: list[Runtime] = [choice.value for choice in runtime] if runtime else list(RUNTIMES)
    modes: tuple[Mode, ...] = ("inference", "training") if training else ("inference",)
    cells: list[Cell]
    if quick:
        cells, seconds = quick_cells(), min(seconds, 2.0)
    elif layers:
        if any(":" in name for name in names or ()):
            raise ValueError("a way is of a network's convolutions: for --layers give the transform alone")
        cells = layer_cells(names or FAMILIES, widths or WIDTHS, batch or BATCHES, runtimes, modes)
    elif network is not None:
        if network not in SHAPES:
            create_model(network)  # what cannot be made is told before anything is timed
        cells = network_cells(
            network,
            names,
            params=parse_count(params) if params else None,
            ratio=parse_share("--ratio", ratio) if ratio else None,
            batches=batch or (8, 1),
            runtimes=runtimes,
            modes=modes,
        )
    else:
        cells = whole_suite(runtimes)
    made = run(cells, out, seconds=seconds, limit=limit, told=_tell)
    show(table(made))
    missing = len(cells) - len({done.cell for done in made.done} & set(cells))
    if missing:
        typer.echo(f"{missing} of {len(cells)} cells are not measured yet: the same command goes on")
    for path, text in ((svg, figure), (markdown, sections)):
        if path is not None:
            with whole_file(path) as temporary:
                temporary.write_text(text(made), encoding="utf-8")


def _asked(name: str) -> str:
    """A transform, perhaps with a way, as it is known."""
    known = get_transform(transform_of(name)).name
    way = way_of(name)
    return known if way == "auto" else f"{known}:{way}"


def _tell(done: Done) -> None:
    typer.echo(f"{done.cell.name}: {done.problem or 'measured'}", err=True)
