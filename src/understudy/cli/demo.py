"""The main job from nothing: demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from understudy._util.quantities import parse_share
from understudy._util.text_tables import table
from understudy.comparisons import Comparison
from understudy.experiments.demo import Demo, demonstrate
from understudy.report import write_comparison, write_compression
from understudy.report.read.comparison import beside_rivals, claims, comparison_table
from understudy.transforms import get_transform

from .common import app, pairs, show
from .training import Settings

_DEFAULT = Demo()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for all of it. One that was stopped goes on.")] = Path(
        "runs/demo"
    ),
    transform: Annotated[
        str, typer.Option("--transform", "-t", help="What stands in for the layers; auto: what fits best.")
    ] = _DEFAULT.transform,
    ratio: Annotated[str, typer.Option(help="At most this share of the original's parameters.")] = str(
        _DEFAULT.ratio
    ),
    recover: Annotated[
        int, typer.Option(help="Epochs of the student with the original as teacher.", min=0)
    ] = _DEFAULT.recover,
    settings: Settings = None,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Begin anew where the folder holds a demo.")] = False,
) -> None:
    """Train a wide network on the bundled digits, compress, recover and export it; time it beside others.

    It is what train, compress --recover and export do, in one folder, and beside the student two narrower
    dense networks: one that trains as long as everything that made the student, and one with the same
    teacher. --set changes the recipe wide_digits.
    """
    if transform != "auto":
        get_transform(transform)
    asked = Demo(pairs("--set", settings or []), transform, parse_share("--ratio", ratio), recover, seed)
    console = Console(stderr=True)
    try:
        found = demonstrate(
            asked,
            out,
            finish_student=write_compression,
            finish=write_comparison,
            force=force,
            report=lambda line: console.print(escape(line), highlight=False, soft_wrap=True),
        )
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on", highlight=False)
        raise typer.Exit(130) from None
    _tell(found, out)


def _tell(found: Comparison, out: Path) -> None:
    """The table, what is held of what a student promises, and where the page is."""
    made = comparison_table(found)
    show(
        table(
            made.columns,
            [[entry.text for entry in row] for row in made.rows],
            title=f"{found.data}, {found.test_samples} test images; {found.runtime}, best / median",
        )
    )
    for line in (*map(str, claims(found)), *beside_rivals(found)):
        show(escape(line))
    show(escape(f"{out / 'index.html'}"))
