"""Out of PyTorch: export."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

from understudy import data as datasets
from understudy._util.factories import check_trust
from understudy.compressions import FILE, Compressed
from understudy.counting.trace import Example
from understudy.deploy.export import export as write_file
from understudy.deploy.graph import rebatched
from understudy.experiments.unfinished import STUDENT
from understudy.networks.models import create_model, example_input
from understudy.students.file import is_saved, load
from understudy.students.weights import load_weights
from understudy.train import Run
from understudy.train.job import load_data
from understudy.train.student import dense_network
from understudy.train.teacher import load_trained

from .common import app, show, sizes
from .planning import Input
from .training import DataFolder, Download, Trust

_CALIBRATION = (8, 64)  # batches and their size
_UNCALIBRATED = "--int8 needs data to calibrate by: export a run, or call us.export(…, int8=batches)"


class FormatChoice(str, Enum):
    """For which runtime."""

    onnx = "onnx"
    openvino = "openvino"
    torch_export = "torch-export"


class PrecisionChoice(str, Enum):
    """Of the numbers in the file."""

    float32 = "float32"
    float16 = "float16"


@app.command()
def export(
    target: Annotated[
        Path, typer.Argument(help="A finished run, a folder that compress wrote, or a file of weights.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write, such as student.onnx.", show_default=False)],
    format: Annotated[
        FormatChoice | None,
        typer.Option(help="By default as the file ends: .onnx, .xml or .pt2.", show_default=False),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help="Which network a file of weights is for, as for plan.", show_default=False),
    ] = None,
    input: Input = None,
    batch: Annotated[
        int, typer.Option(help="Samples in the call that is timed; the file takes any.", min=1)
    ] = 1,
    dtype: Annotated[
        PrecisionChoice, typer.Option(help="Of the numbers in the file.")
    ] = PrecisionChoice.float32,
    int8: Annotated[
        bool, typer.Option("--int8", help="Eight-bit numbers, calibrated on training images of the run.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over a file that exists.")] = False,
    data: DataFolder = None,
    download: Download = False,
    trust: Trust = False,
) -> None:
    """Write a network for another runtime, check it there, and time it beside the original."""
    batches: Sequence[Example] | None = None
    if target.is_dir():
        if network is not None:
            raise ValueError("--network is for a file of weights; a folder names its own")
        compressed = _compression_of(target)
        if compressed is not None:
            if int8:
                raise ValueError(_UNCALIBRATED)
            student, original, example = _of_compression(target, compressed, input, trust=trust)
        else:
            if input is not None:
                raise ValueError("--input is not for a run, whose inputs have the shape of its data")
            student, original, example = _of_run(target, data, trust=trust)
            if int8:
                batches = _calibration(target, data, download=download)
    else:
        if network is None:
            raise ValueError(f"{target} is no run: say which network it is for (--network wrn_28_10)")
        if int8:
            raise ValueError(_UNCALIBRATED)
        student, original = _of_file(target, network)
        example = example_input(network, original, None if input is None else sizes(input))
    done = write_file(
        student,
        out,
        rebatched(example, batch),
        format=None if format is None else format.value,
        original=original,
        dtype=dtype.value,
        int8=batches,
        overwrite=overwrite,
    )
    show(done)


def _of_run(folder: Path, data: Path | None, *, trust: bool) -> tuple[nn.Module, nn.Module, Example]:
    recipe = Run.read(folder).recipe
    check_trust(folder, {"network": recipe.network, "data": recipe.data}, trust=trust)
    classes, shape = datasets.facts(recipe.data, data)
    student = load_trained(folder, recipe, classes, trust=trust)
    return student, dense_network(recipe, classes, training=False), torch.zeros(1, *shape)


def _compression_of(folder: Path) -> Compressed | None:
    """What `compress` wrote into this folder, or into the one above it, of which it holds a student."""
    if (folder / FILE).is_file():
        return Compressed.load(folder)
    above = folder.resolve().parent
    result = Compressed.load(above) if (above / FILE).is_file() else None
    is_one = result is not None and any(one.folder == folder.resolve().name for one in result.students)
    return result if is_one else None


def _of_compression(
    folder: Path, result: Compressed, input: str | None, *, trust: bool
) -> tuple[nn.Module, nn.Module, Example]:
    """The student in a folder that `compress` wrote."""
    if not (folder / STUDENT).is_file():
        names = ", ".join(str(folder / one.folder) for one in result.students)
        raise ValueError(f"{folder} holds several students: give the folder of one, {names}")
    check_trust(folder, {"network": result.network}, trust=trust)
    dense = create_model(result.network, **result.options)
    shape = None if input is None else sizes(input)
    if shape is None and result.input_shape is not None:
        shape = result.input_shape[1:]
    return load(folder / STUDENT, dense), dense, example_input(result.network, dense, shape)


def _of_file(path: Path, name: str) -> tuple[nn.Module, nn.Module]:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    dense = create_model(name)
    if is_saved(path):
        return load(path, dense), dense
    trained = create_model(name)
    load_weights(trained, path)
    return trained, dense


def _calibration(folder: Path, data: Path | None, *, download: bool) -> list[Example]:
    recipe = Run.read(folder).recipe
    count, size = _CALIBRATION
    loader = load_data(recipe, data, download=download).train_batches(size, seed=recipe.seed)
    return [images for images, _ in itertools.islice(loader.epoch(0), count)]
