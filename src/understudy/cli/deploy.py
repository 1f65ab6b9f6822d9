"""Out of PyTorch: export."""

from __future__ import annotations

import itertools
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from torch import Tensor, nn

from understudy import data as datasets
from understudy._util.factories import check_trust
from understudy.compressions import FILE, Compressed
from understudy.counting.trace import Example
from understudy.data.found import find_data
from understudy.deploy.export import export as write_file
from understudy.deploy.formats import written
from understudy.deploy.graph import lively, outputs, ready, rebatched
from understudy.deploy.runtimes import target_of
from understudy.experiments.unfinished import STUDENT
from understudy.fitting.inputs import read_batches
from understudy.networks.models import create_model, example_input
from understudy.networks.trained import normalisation
from understudy.students.file import is_saved, load
from understudy.students.weights import load_weights
from understudy.train import Run
from understudy.train.job import load_data
from understudy.train.student import dense_network
from understudy.train.teacher import load_trained

from .common import app, show, sizes
from .planning import Input
from .training import Download, Trust

_CALIBRATION = (8, 64)  # batches and their size, as --help says
_UNCALIBRATED = (
    "--int8 needs data to calibrate by: --data DIR, a name such as digits, or package.module:factory, as for "
    "compress; a run has its own"
)


_Normalised = tuple[tuple[float, ...], tuple[float, ...]]  # the means and deviations of channels


class Calibration(NamedTuple):
    """Batches to calibrate by, and others to judge by."""

    batches: list[Any]
    test: list[Any]


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
        typer.Option(
            help="By default as the file ends, .onnx, .xml or .pt2; a name without an end gets one. OpenVINO "
            "reads .onnx too, which is smaller than .xml where layers are many and small.",
            show_default=False,
        ),
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
        bool,
        typer.Option(
            "--int8",
            help="Eight-bit numbers (ONNX), calibrated on 512 training inputs of the run or of --data; with "
            "the accuracy before and after where there are labels.",
        ),
    ] = False,
    test_samples: Annotated[
        int, typer.Option(help="Eight bits are judged by at most so many test inputs.", min=1)
    ] = 1000,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over a file that exists.")] = False,
    data: Annotated[
        str | None,
        typer.Option(
            help="Of a run, the folder that holds its data set, by default ~/.cache/understudy for CIFAR. "
            "Of other networks what --int8 is calibrated by, as for compress: a folder, a name such as "
            "digits, or package.module:factory.",
            show_default=False,
        ),
    ] = None,
    download: Download = False,
    trust: Trust = False,
) -> None:
    """Write a network for another runtime, check it there, and time it beside the original."""
    out, kind = target_of(out, None if format is None else format.value)
    for file in () if overwrite else written(out):
        if file.exists():
            raise FileExistsError(f"{file} exists; --overwrite writes over it")
    place = None if data is None else Path(data)
    normalised: _Normalised | None = None  # of a run by itself
    if target.is_dir():
        if network is not None:
            raise ValueError("--network is for a file of weights; a folder names its own")
        compressed = _compression_of(target)
        if compressed is not None:
            student, original, example = _of_compression(target, compressed, input, trust=trust)
            normalised = compressed.mean, compressed.std
        else:
            if input is not None:
                raise ValueError("--input is not for a run, whose inputs have the shape of its data")
            student, original, example = _of_run(target, place, trust=trust)
    else:
        if network is None:
            raise ValueError(f"{target} is no run: say which network it is for (--network wrn_28_10)")
        student, original = _of_file(target, network)
        example = example_input(network, original, None if input is None else sizes(input))
        normalised = normalisation(network, original)
    if not int8:
        if normalised is not None and data is not None:
            raise ValueError("--data is for a run, or to calibrate by: give --int8 too")
        calibration = None
    elif normalised is None:
        calibration = _calibration(target, place, test_samples, download=download)
    elif data is None:
        raise ValueError(_UNCALIBRATED)
    else:
        calibration = _calibration_of(data, student, example, normalised, test_samples, download=download)
    done = write_file(
        student,
        out,
        rebatched(example, batch),
        format=kind,
        original=original,
        dtype=dtype.value,
        int8=None if calibration is None else calibration.batches,
        test=None if calibration is None else calibration.test,
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


def _calibration(folder: Path, data: Path | None, tested: int, *, download: bool) -> Calibration:
    """Of a run's own data."""
    recipe = Run.read(folder).recipe
    count, size = _CALIBRATION
    found = load_data(recipe, data, download=download)
    loader = found.train_batches(min(size, found.train_size), seed=recipe.seed)
    found = found.take(test=min(tested, found.test_size))
    test = found.test_batches(min(size, found.test_size))
    return Calibration([*itertools.islice(loader.epoch(0), count)], [*test.epoch(0)])


def _calibration_of(
    source: str,
    student: nn.Module,
    example: Example,
    normalised: _Normalised,
    tested: int,
    *,
    download: bool,
) -> Calibration:
    """Of data that compress would take; with labels where these are the classes of the outputs."""
    size = example.shape[-1] if isinstance(example, Tensor) and example.dim() == 4 else None
    mean, std = normalised
    found = find_data(source, mean=mean, std=std, size=size, download=download, tested=tested)
    count, batch = _CALIBRATION
    parts = read_batches(found.inputs, count * batch)
    own = parts[0].inputs
    if isinstance(own, Tensor) and isinstance(example, Tensor) and own.shape[1:] != example.shape[1:]:
        given, wanted = (",".join(map(str, one.shape[1:])) for one in (own, example))
        raise ValueError(
            f"--data {source} gives inputs of {given}, the file takes {wanted}: --input {given} changes that"
        )
    answers = outputs(ready(student), lively(example))[0]
    is_labelled = found.labelled and len(found.classes) in (0, answers.shape[-1])
    batches, test = (
        [(one.inputs, one.labels) if is_labelled else one.inputs for one in some]
        for some in (parts, read_batches(found.test, tested))
    )
    return Calibration(batches, test)
