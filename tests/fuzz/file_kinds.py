"""Every kind of file that is read: how a sound one is made, damaged, and read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mutations import Damage, forged, of_json, of_lines, of_tensors, of_toml
from torch import nn

import understudy as us
from understudy._util.provenance import Machine
from understudy._util.records import write_record
from understudy.compressions import (
    Compressed,
    Footprint,
    Latency,
    LayerShare,
    Looked,
    Quality,
    Student,
    Tried,
)
from understudy.experiments import find_results, load_grid, sweep_status
from understudy.experiments.folder import FORMAT, Index, IndexEntry, write_result
from understudy.fitting.calibration import Calibration
from understudy.report.markdown import markdown_report
from understudy.report.read.groups import ablations, group_results
from understudy.report.spreadsheet import csv_text
from understudy.results import Costs, CurvePoint, ErrorRates, PlannedCosts, Result, Size, Speed, Status
from understudy.train import Job, Recipe, Run, load_recipe
from understudy.train.checkpoint import Progress
from understudy.train.figures import Epoch, Errors, Outcome
from understudy.train.trainer import Trainer

REFUSED = "refused"  # what a reader gives that names what is wrong and goes on


@dataclasses.dataclass(frozen=True)
class Kind:
    """A file, and what reads it: gives what was read as something to compare, or raises."""

    name: str
    file: Path
    damage: Damage
    read: Callable[[], object]
    is_sealed: bool = False  # by a digest: whatever is read is what was written
    command: tuple[str, ...] = ()  # that reads the file, too


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 12))


def kinds(folder: Path) -> list[Kind]:
    """Sound files of every kind below a folder; those with a digest twice, once with a forged one."""
    made = [*_networks(folder), *_run(folder / "run"), *_sweep(folder / "sweep"), *_texts(folder)]
    again = [
        dataclasses.replace(kind, name=f"{kind.name}, forged", damage=forged, is_sealed=False)
        for kind in made
        if kind.is_sealed
    ]
    return made + again


def _networks(folder: Path) -> list[Kind]:
    torch.manual_seed(0)
    model = small()
    found = []
    for transform in ("hashed", "low_rank_sparse"):
        file = folder / f"{transform}.safetensors"
        us.save(us.substitute(model, us.plan(model, transform, scale=0.4)), file)
        found.append(Kind(f"student, {transform}", file, of_tensors, _loader(file, model), is_sealed=True))
    network = us.create_model("wrn_10_1")
    plan = folder / "plan.json"
    us.plan(network, {"*.conv1": "hashed", "*": "low_rank"}, ratio=0.5, example=(1, 3, 8, 8)).save(plan)

    def planned() -> object:
        with torch.device("meta"):
            dense = us.create_model("wrn_10_1")
        return repr(us.substitute(dense, us.Plan.load(plan), init="fresh"))

    found.append(Kind("plan", plan, of_json, planned, command=("cost", "wrn_10_1", "--plan", str(plan))))
    seen = folder / "seen.safetensors"
    us.calibrate(model, torch.randn(8, 3, 6, 6)).save(seen)

    def calibrated() -> object:
        read = Calibration.load(seen)
        return str(read), {name: one.mean.tolist() for name, one in read.layers.items()}

    found.append(Kind("calibration", seen, of_tensors, calibrated, is_sealed=True))
    return found


def _loader(file: Path, model: nn.Module) -> Callable[[], object]:
    def read() -> object:
        state = us.load(file, model).state_dict()
        return {name: tensor.tolist() for name, tensor in state.items()}

    return read


def make_run(folder: Path) -> tuple[Run, Trainer]:
    """A run that has finished, with two checkpoints; nothing was trained but a step."""
    torch.manual_seed(0)
    inputs = torch.randn(8, 3, 6, 6)
    recipe = Recipe(network="wrn_10_1", epochs=2, batch_size=4, channels_last=False)
    network = small()
    job = Job(model=network, batches=[(inputs, torch.zeros(8, dtype=torch.long))], settings=recipe)
    trainer = Trainer(job, 1)
    run = Run.open(folder, recipe)
    for _ in range(2):
        progress = Progress()
        trainer.begin(0)
        trainer.step(inputs, torch.zeros(8, dtype=torch.long), 1.0, progress)
        run.save(
            trainer.checkpoint(dataclasses.replace(progress, step=progress.step + len(run.checkpoints())))
        )
    errors = Errors(0.5, 10.0, 1.0, 100)
    for number in range(2):
        run.log(Epoch(number, number + 1, 0.1, 0.5, 12.0, errors, 1.5))
    run.set_outcome(Outcome(run.metrics()[-1], 1000, 2000, 2000, 4000))
    run.set_status("finished")
    us.save(us.create_model("wrn_10_1"), run.model_file)
    us.plan(us.create_model("wrn_10_1"), "low_rank", ratio=0.5).save(folder / "plan.json")
    run.close()
    return run, trainer


def _run(folder: Path) -> list[Kind]:
    run, trainer = make_run(folder)
    network, newest = trainer.network, run.checkpoints()[0]

    def taken_up() -> object:
        checkpoint, refused = run.latest(torch.device("cpu"), trainer.check)
        assert checkpoint is not None, "the older one is whole"
        trainer.restore(checkpoint)
        told = {name: value.tolist() for name, value in network.state_dict().items()}
        return REFUSED if refused else (told, checkpoint.state)

    def summed_up() -> object:
        return Run.read(folder).summary()

    listed = ("runs", str(folder))
    return [
        Kind("checkpoint", newest, of_tensors, taken_up, is_sealed=True),
        Kind("config of a run", folder / "config.json", of_json, summed_up, command=listed),
        Kind("status of a run", folder / "status.json", of_json, summed_up, command=listed),
        Kind("result of a run", folder / "result.json", of_json, summed_up, command=listed),
        Kind("metrics of a run", folder / "metrics.jsonl", of_lines, summed_up, command=listed),
    ]


def make_sweep(folder: Path) -> None:
    """The folder of a sweep with two results."""
    for name in ("results", "runs"):
        (folder / name).mkdir(parents=True)
    names = ("one", "two")
    for name in names:
        write_result(folder, _result(name))
    entries = tuple(IndexEntry(name, f"id-{name}") for name in names)
    write_record(folder / "grid.json", Index("0.2.0", "tiny", "0123456789", entries), FORMAT)


def _sweep(folder: Path) -> list[Kind]:
    make_sweep(folder)

    def reported() -> object:
        status, found = sweep_status(folder), find_results(folder)
        groups, rows = group_results(found.results), ablations(found.results)
        assert markdown_report("title", found.results, groups, rows)
        assert csv_text(found.results)
        return REFUSED if status.passed_over else status

    command = ("status", str(folder))
    return [
        Kind("grid of a sweep", folder / "grid.json", of_json, reported, command=command),
        Kind("result of a cell", folder / "results" / "one.json", of_json, reported, command=command),
    ]


def _result(name: str) -> Result:
    recipe = Recipe(network="wrn_10_1", epochs=2)
    deciding = recipe.deciding()
    return Result(
        understudy="0.2.0", commit="abc", grid="tiny", name=name, id=f"id-{name}", role="student",
        status=Status("finished"), network="wrn_10_1", data="digits", structure="low_rank",
        transforms=("low_rank",), budget=Size("params", 24000.0, "24k"), attention=10.0, decay="crs",
        crs="layer", seed=0, epochs=2, teacher="t", deciding=deciding,
        indifferent={key: value for key, value in recipe.to_dict().items() if key not in deciding},
        planned=PlannedCosts(1000, 2000, 2000, 3000), costs=Costs(1000, 2000, 2000, 5000),
        errors=ErrorRates(5.0, 1.0, 100), speed=Speed(100.0, 2.0, 64, 1),
        curve=(
            CurvePoint(0, 1, 0.1, 1.0, 50.0, 1.0, 40.0, 10.0, 2.0),
            CurvePoint(1, 2, 0.1, None, None, None, 5.0, 1.0, 2.0),
        ),
        machine=Machine("x86_64", 2, "cpu", "2.13", "3.11", 1),
    )  # fmt: skip


def _texts(folder: Path) -> list[Kind]:
    recipe, grid = folder / "mine.toml", folder / "cells.toml"
    recipe.write_text(
        'name = "mine"\nnetwork = "wrn_10_1"\ndata = "digits"\nepochs = 2\nlearning_rate = 0.1\n'
        'milestones = [1]\ntransform = { Linear = "shuffle", "*.conv2" = "low_rank" }\nratio = "30%"\n'
        'options = {}\nnesterov = true\nbetas = [0.9, 0.99]\ndecay_overrides = ["hashed=none"]\nseed = 1\n'
    )
    grid.write_text(
        'recipe = "demo"\nseeds = [0, 1]\nnetworks = ["wrn_10_1"]\nunreachable = "skip"\n'
        "[settings]\nepochs = 2\n"
        '[teacher]\nepochs = 3\n[[students]]\ntransforms = ["low_rank", "hashed"]\nratio = [0.1, "30%"]\n'
        'attention = [true, false]\ncrs = true\n[[baselines]]\nnarrow = ["10k"]\n'
    )
    compressed = folder / "compressed"
    compressed.mkdir()
    _compressed().save(compressed)

    def asked() -> object:
        read = load_recipe(recipe)
        return read.settings(), read.identity()

    def expanded() -> object:
        return [(cell.name, cell.id) for cell in load_grid(grid).cells]

    def compression() -> Any:
        read = Compressed.load(compressed)
        return read.measure, read.latency, [read.score(one.final) for one in read.students]

    return [
        Kind("recipe", recipe, of_toml, asked),
        Kind("grid", grid, of_toml, expanded),
        Kind("compress.json", compressed / "compress.json", of_json, compression),
    ]


def _compressed() -> Compressed:
    quality = Quality(500, 90.0, 99.0, 95.0, 0.98)
    student = Student(
        name="low_rank-50", folder="", transform="low_rank", budget="at most 50 %",
        costs=Footprint(500, 4_000, 3_900, 2_500), quality=quality, latency=Latency(0.8, 1.0, 1),
        steps=(Tried("layer after layer", None, False),),
        layers=(LayerShare("conv1", "16 → 16", "low_rank, rank 8", 100, 40, 0.02, ""),), remarks=("one",),
        seconds=3.0,
    )  # fmt: skip
    return Compressed(
        understudy="0.2.0", commit="abc", machine=Machine("x86_64", 2, "cpu", "2.13", "3.11", 1),
        network="resnet20", options={"classes": 10}, weights="w.safetensors", weights_digest="sha256:1",
        data="cifar10", input_shape=(1, 3, 32, 32), mean=(0.5,), std=(0.25,), seed=0,
        original=Footprint(1_000, 8_000, 8_000, 5_000), quality=quality,
        calibration=Looked(64, 2, ("idle",), ()), skipped=(), students=(student,), refused=(),
        notes=("a note",), seconds=3.0,
    )  # fmt: skip
