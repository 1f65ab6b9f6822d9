"""Compress a trained network: one student or a curve of them, into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from understudy._util.files import digest
from understudy._util.quantities import parse_share
from understudy._util.text_tables import table
from understudy.compressions import Compressed
from understudy.data import Augment
from understudy.data.found import Found, find_data
from understudy.experiments.compressing import Origin, Teaching, compress_into
from understudy.experiments.tradeoff import every_transform
from understudy.experiments.unfinished import Asked, Unfinished
from understudy.fitting.calibrate import SAMPLES
from understudy.networks import nets
from understudy.networks.models import example_input
from understudy.networks.trained import normalisation, trained_model
from understudy.planning.budget import Budget
from understudy.report import write_compression
from understudy.report.read.compression_tables import least_telling, student_table
from understudy.train.recover import changed_settings
from understudy.train.settings import REQUEST_KEYS
from understudy.transforms import get_transform

from .bars import compression_bars
from .common import app, assignment, pairs, show, sizes
from .planning import Exclude, Include, Input, Model, SpatialChoice
from .training import Download

# Of a recipe: what other flags say, or nothing here.
_ELSEWHERE = {
    "name",
    "network",
    "data",
    "train_images",
    "seed",
    "plan",
    "init",
    "epochs",
    "teacher",
    *REQUEST_KEYS,
}
_OF_DATA = {"mean", "std", "workers"}  # settings that count without recovery too


@app.command()
def compress(
    model: Model,
    data: Annotated[
        str | None,
        typer.Option(
            help="Inputs like those that the network was trained on, labelled or not: a folder (CIFAR, "
            "train/ and val/, class folders, images), a name such as digits, or package.module:factory.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to make.", show_default=False)] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="A file of weights (safetensors, or a plain state dict); a built-in network needs one.",
            show_default=False,
        ),
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(
            "--transform",
            "-t",
            metavar="NAME,…|all|auto|PATTERN=NAME",
            help="Which transform, several with a comma between them, all of them, auto for the best of them "
            "at each layer, or one for each pattern; by default low_rank.",
            show_default=False,
        ),
    ] = None,
    ratio: Annotated[
        str | None,
        typer.Option(help="At most this share of the parameters, such as 0.5 or 50%.", show_default=False),
    ] = None,
    ratios: Annotated[
        str | None,
        typer.Option(help="A student for each of these: 0.9,0.7,0.5,0.3.", show_default=False),
    ] = None,
    params: Annotated[
        str | None, typer.Option(help="At most so many parameters, such as 1.2M.", show_default=False)
    ] = None,
    mult_adds: Annotated[
        str | None, typer.Option(help="At most so many mult-adds, such as 0.3G.", show_default=False)
    ] = None,
    bytes: Annotated[
        str | None, typer.Option(help="A file of at most so many bytes, such as 1.5MB.", show_default=False)
    ] = None,
    recover: Annotated[
        int, typer.Option(help="Then so many epochs with the original as teacher; no labels needed.", min=0)
    ] = 0,
    samples: Annotated[int, typer.Option(help="At most so many inputs are looked at.", min=2)] = SAMPLES,
    test_samples: Annotated[
        int | None,
        typer.Option(help="Test on the first so many inputs; by default on all.", min=1, show_default=False),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fit each layer by itself only: a first look at many transforms."),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE of recovery or normalisation, such as learning_rate=0.0003 or "
            "mean=0.485,0.456,0.406; may be repeated.",
            show_default=False,
        ),
    ] = None,
    spatial: Annotated[
        SpatialChoice,
        typer.Option(
            help="How a k×k convolution is replaced, as for plan; auto takes for each what loses least, "
            "unfolded or inside, and with -t auto separable too."
        ),
    ] = SpatialChoice.auto,
    include: Include = None,
    exclude: Exclude = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the transform, such as indexing=independent.", show_default=False),
    ] = None,
    input: Input = None,
    seed: Annotated[
        int, typer.Option(help="Seed of which inputs are looked at, and of all other choices.")
    ] = 0,
    download: Download = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the compression that is in the folder already.")
    ] = False,
) -> None:
    """Make a small network of a trained MODEL that still works: plan, fit, correct; nothing is trained.

    The folder has the student, its plan, every number before and after (compress.json), a card that says how
    to load it (README.md) and a page (index.html). Several ratios or transforms give a curve, each student in
    a folder of its own. The same command goes on where a killed one stopped.
    """
    budgets = _budgets(ratios, ratio=ratio, params=params, mult_adds=mult_adds, bytes=bytes)
    transforms = _transforms(transform)
    options = pairs("--option", option or [])
    changed = pairs("--set", settings or [])
    for key in sorted(changed.keys() & _ELSEWHERE):
        raise ValueError(
            f"--set {key} is not for compress: it sets how images are normalised and recovery is done"
        )
    recipe = changed_settings({**changed, "seed": seed})
    for key in sorted(changed.keys() - _OF_DATA) if not recover else ():
        raise ValueError(f"--set {key} is of recovery: give its epochs too, --recover N")
    if data is None:
        raise ValueError(
            "give inputs to look at: --data DIR, a name such as digits, or package.module:factory"
        )
    if out is None:
        raise ValueError("give a folder for the student: --out DIR")
    if weights is not None and not weights.is_file():
        raise FileNotFoundError(f"no file of weights {str(weights)!r}")
    hashed = digest(weights) if weights is not None else ""
    choices: dict[str, Any] = {
        "samples": samples,
        "test_samples": test_samples,
        "quick": quick,
        "seed": seed,
        "spatial": spatial.value,
        "include": include,
        "exclude": exclude,
        "options": options,
    }
    asked = Asked(
        network=model,
        weights=hashed,
        data=data,
        transforms=tuple(str(one) for one in transforms),
        budgets=tuple(map(str, budgets)),
        epochs=recover,
        settings={**choices, "input": input, "recipe": recipe.deciding() if recover or changed else {}},
    )
    shape = None if input is None else sizes(input)
    with Unfinished(out, asked, force=force) as place:
        network, found, made_with = _material(
            model, weights, data, recipe, shape, download, seed, apart=recover > 0
        )
        origin = Origin(model, made_with, "" if weights is None else weights.name, hashed)
        with compression_bars(len(budgets) * len(transforms), recover) as (report, watch, watch_training):
            try:
                result = compress_into(
                    place,
                    origin,
                    network,
                    found,
                    transforms=transforms,
                    budgets=budgets,
                    teaching=Teaching(recover, {**changed, "seed": seed}) if recover else None,
                    settings=choices,
                    finish=write_compression,
                    report=report,
                    watch=watch,
                    watch_training=watch_training,
                )
            except KeyboardInterrupt:
                report("stopped; the same command goes on")
                raise typer.Exit(130) from None
    _tell(result, out)


def _budgets(ratios: str | None, **one: str | None) -> list[Budget]:
    """What is asked for, each once, in the order in which it was written."""
    flags = {name: f"--{name.replace('_', '-')}" for name in one}
    named = [flags[name] for name, value in one.items() if value is not None]
    if ratios is None:
        if len(named) != 1:
            got = " and ".join(named) or "none"
            raise ValueError(f"give one of --ratios, {', '.join(flags.values())}; got {got}")
        return [Budget.of(**one)]
    if named:
        raise ValueError(f"--ratios is a budget already: leave out {' and '.join(named)}")
    shares = [parse_share("--ratios", share) for share in ratios.split(",")]
    return [Budget.of(ratio=share) for share in dict.fromkeys(shares)]


def _transforms(given: list[str] | None) -> list[str | dict[str, str]]:
    """Names, each known; or one assignment by patterns."""
    if given and any("=" in one for one in given):
        chosen = assignment(given)
        assert chosen is not None
        return [chosen]
    names = [name.strip() for one in given or ["low_rank"] for name in one.split(",")]
    every = [name for one in names for name in (every_transform() if one == "all" else [one])]
    for name in every:
        if name != "auto":
            get_transform(name)
    return list(dict.fromkeys(every))


def _material(
    name: str,
    weights: Path | None,
    source: str,
    recipe: Any,
    shape: tuple[int, ...] | None,
    download: bool,
    seed: int,
    *,
    apart: bool,
) -> tuple[nn.Module, Found, dict[str, Any]]:
    """The trained network, its data, and the options that the network was made with."""
    network: nn.Module | None = None
    given = shape
    mean, std = recipe.mean, recipe.std
    builtin = nets.is_builtin(name)
    if builtin:
        shape = shape or nets.input_shape(name)
    else:  # it says itself how large its images are
        network = trained_model(name, weights)
        if shape is None and name.partition(":")[0] in ("timm", "torchvision"):
            shape = tuple(example_input(name, network).shape[1:])  # type: ignore[union-attr]
        if not mean and not std:
            mean, std = normalisation(name, network)
    found = find_data(
        source,
        seed=seed,
        batch_size=recipe.batch_size,
        augment=Augment(padding=recipe.crop_padding, flip=recipe.flip, cutout=recipe.cutout),
        mean=mean,
        std=std,
        size=shape[-1] if shape is not None and len(shape) > 1 else None,
        download=download,
        workers=recipe.workers,
        apart=apart,
    )
    if given is not None:
        _check_shape(given, found)
    made_with = {"classes": len(found.classes)} if builtin and found.classes else {}
    return network or trained_model(name, weights, classes=len(found.classes)), found, made_with


def _check_shape(shape: tuple[int, ...], found: Found) -> None:
    """Refuse a shape that the data do not have: only images that are read from files are made as large."""
    tensors = [leaf for leaf in tree_leaves(next(iter(found.inputs))) if isinstance(leaf, Tensor)]
    if tensors and tuple(tensors[0].shape[1:]) != shape:
        own, asked = (",".join(map(str, one)) for one in (tensors[0].shape[1:], shape))
        raise ValueError(f"--input {asked} does not fit: inputs of {found.name} have the shape {own}")


def _tell(result: Compressed, out: Path) -> None:
    """The numbers, and where they are."""
    made = student_table(result)
    rows = [[entry.text for entry in row] for row in made.rows]
    show(table(made.columns, rows, title=result.network, yielding=least_telling(result)))
    looked = result.calibration
    for paths, what in (
        (looked.idle, "never ran on the data: fitted plainly"),
        (looked.short, "saw fewer vectors than it has dimensions: regularised"),
    ):
        for path in paths:
            show(escape(f"{path} {what}"))
    for note in (*result.notes, *(f"{one.name}: {one.reason}" for one in result.refused)):
        show(escape(note))
    show(escape(f"{out / 'index.html'}"))
