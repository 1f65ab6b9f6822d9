"""Train, evaluate, and look at runs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from understudy._util.quantities import format_count
from understudy._util.text_tables import table
from understudy.train import (
    Recipe,
    Run,
    RunError,
    evaluate_trained,
    load_recipe,
    recipe_names,
    recipe_settings,
    settings_by_source,
)
from understudy.train import train as train_recipe
from understudy.train.checkpoint import Progress as Position
from understudy.train.config import CONFIG
from understudy.train.processes import leave
from understudy.train.teacher import read_inputs

from .common import app, assignment, pairs, show

DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The folder that holds the data set; by default ~/.cache/understudy for CIFAR.",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE over the recipe, such as epochs=30; a list is VALUE,VALUE; may be repeated.",
        show_default=False,
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch the data set first if it is not there.")]
Device = Annotated[
    str | None,
    typer.Option(help="Such as cpu or cuda:1; by default a GPU if there is one.", show_default=False),
]

Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Call functions of others that a run's folder names, package.module:factory."
    ),
]


@app.command()
def train(
    recipe: Annotated[
        str, typer.Argument(help="A shipped recipe (" + ", ".join(recipe_names()) + ") or a TOML file.")
    ],
    transform: Annotated[
        list[str] | None,
        typer.Option(
            "--transform",
            "-t",
            metavar="NAME|PATTERN=NAME",
            help="Train a student with this transform, or repeated, with one for the layers that a pattern "
            "names, such as '*.conv2=low_rank'; else the dense network.",
            show_default=False,
        ),
    ] = None,
    params: Annotated[
        str | None, typer.Option(help="At most so many parameters, such as 1.2M.", show_default=False)
    ] = None,
    mult_adds: Annotated[
        str | None, typer.Option(help="At most so many mult-adds, such as 0.5G.", show_default=False)
    ] = None,
    size: Annotated[
        str | None,
        typer.Option("--bytes", help="At most so many bytes on disk, such as 4MB.", show_default=False),
    ] = None,
    ratio: Annotated[
        str | None,
        typer.Option(help="At most this share of the dense parameters: 0.3 or 30%.", show_default=False),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="A finished run, a file of weights, timm:NAME or torchvision:NAME.", show_default=False
        ),
    ] = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run's folder; by default runs/RECIPE-TRANSFORM-IDENTITY. A run that is there goes on.",
            show_default=False,
        ),
    ] = None,
    data: DataFolder = None,
    download: Download = False,
    device: Device = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard into the run's folder.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Train a network or its student by RECIPE; the same command again goes on where a killed run stopped."""
    flags = {
        "transform": assignment(transform),
        "params": params,
        "mult_adds": mult_adds,
        "bytes": size,
        "ratio": ratio,
        "teacher": teacher,
    }
    changes = pairs("--set", settings or []) | {k: v for k, v in flags.items() if v is not None}
    resolved = load_recipe(recipe, changes)
    folder = out or default_folder(resolved)
    first = os.environ.get("RANK", "0") == "0"
    if first:
        show(escape(f"run: {folder}"))
        show(describe(resolved, set(recipe_settings(recipe)), set(changes)))
    try:
        with progress_bar(resolved, silent=not first) as (watch, report):
            result = train_recipe(
                resolved,
                folder,
                data_folder=data,
                download=download,
                device=device,
                tensorboard=tensorboard,
                trust=trust,
                report=report,
                watch=watch,
            )
    except KeyboardInterrupt:
        if first:
            show("stopped; the same command goes on from the last checkpoint")
        raise typer.Exit(130) from None
    finally:
        leave()
    if first:
        show(
            f"{result.epoch}; {result.params:,} parameters, {format_count(result.mult_adds)} mult-adds, "
            f"{result.bytes:,} bytes"
        )


def default_folder(recipe: Recipe) -> Path:
    """Where a run goes unless it is told: a name for people, and the identity so that no two share it."""
    inputs = read_inputs(recipe)
    identity = recipe.identity(teacher=inputs.teacher, plan=inputs.plan)
    made_of = "-".join(recipe.request.transforms) or recipe.structure
    return Path("runs") / f"{recipe.name}-{made_of}-{identity}"


def describe(recipe: Recipe, from_file: Set[str], from_flags: Set[str]) -> Any:
    """Every setting, by where it comes from."""
    rows = [
        (source, "  ".join(f"{key}={_written(value)}" for key, value in settings.items()))
        for source, settings in settings_by_source(recipe, from_file, from_flags).items()
    ]
    return table(["from", "settings"], rows)


def _written(value: Any) -> str:
    """A setting as `--set` takes it."""
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@contextmanager
def progress_bar(recipe: Recipe, *, silent: bool) -> Iterator[tuple[Any, Any]]:
    """What `train` calls at every step and with every message: a bar on a terminal, lines elsewhere."""
    console = Console(stderr=True, quiet=silent)

    def report(line: str) -> None:
        console.print(escape(line), highlight=False, soft_wrap=True)

    if silent or not console.is_terminal:
        yield lambda *_: None, report
        return
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3f} · {task.fields[rate]:,.0f} images/s · left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task: TaskID | None = None
        started, first_step = 0.0, 0

        def watch(position: Position, batches: int, loss: float) -> None:
            nonlocal task, started, first_step
            if task is None:  # only now is it known where the run stands
                task = bar.add_task("", total=batches * recipe.epochs, epoch="", loss=loss, rate=0.0)
                started, first_step = time.monotonic(), position.step
            steps, seconds = position.step - first_step, time.monotonic() - started
            bar.update(
                task,
                completed=position.step,
                epoch=f"{position.epoch + 1}/{recipe.epochs}",
                loss=loss,
                rate=steps * recipe.batch_size / seconds if seconds else 0.0,
            )

        yield watch, report


@app.command()
def evaluate(
    target: Annotated[
        Path, typer.Argument(help="The folder of a finished run, or a file of weights.", metavar="RUN")
    ],
    recipe: Annotated[
        str | None,
        typer.Option(
            help="For a file of weights: the recipe that says which network and data it is for.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    data: DataFolder = None,
    download: Download = False,
    device: Device = None,
    trust: Trust = False,
) -> None:
    """Test a trained network on its data set's test images."""
    tested = evaluate_trained(
        target,
        recipe,
        pairs("--set", settings or []),
        data_folder=data,
        download=download,
        device=device,
        trust=trust,
    )
    errors, count = tested.errors, tested.errors.test_images
    rows = []
    for name, error in (("top-1", errors.test_error), ("top-5", errors.test_top5_error)):
        if error is not None:
            right = round(count * (1 - error / 100))
            rows.append((name, f"{error:.2f} %", f"{100 - error:.2f} %", f"{right:,} of {count:,}"))
    show(escape(f"{target} on {tested.recipe.data}"))
    show(table(["", ">error", ">accuracy", ">right"], rows))
    show(
        f"{tested.recipe.loss.replace('_', '-')} {errors.test_loss:.4f}; "
        f"{tested.cost.params:,} parameters, {format_count(tested.cost.mult_adds)} mult-adds"
    )


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look for runs, at any depth.")] = Path("runs"),
) -> None:
    """List the runs under DIR: how each stands, its error, what its network costs."""
    if not folder.is_dir():
        raise ValueError(f"no folder {folder}")
    found = sorted(path.parent for path in folder.rglob(CONFIG))
    if not found:
        raise ValueError(f"no run under {folder}")
    rows, reasons = [], []
    for path in found:
        try:
            run = Run.read(path)
            state, recipe = run.summary(), run.recipe
        except (RunError, OSError) as error:
            reasons.append(str(error))
            continue
        name = str(path.relative_to(folder)) if path != folder else path.name
        rows.append(
            (
                name,
                recipe.network,
                recipe.structure,
                state.status,
                f"{state.epochs}/{recipe.epochs}",
                "" if state.test_error is None else f"{state.test_error:.2f} %",
                "" if state.params is None else f"{state.params:,}",
                "" if state.mult_adds is None else format_count(state.mult_adds),
            )
        )
        if state.reason:
            reasons.append(f"{name}: {state.reason}")
    show(
        table(
            ["run", "network", "transform", "status", ">epoch", ">test error", ">parameters", ">mult-adds"],
            rows,
        )
    )
    for reason in reasons:
        show(escape(reason))
