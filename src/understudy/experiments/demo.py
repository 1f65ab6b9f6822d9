"""The main job from nothing, in one folder: a wide network is trained, compressed, recovered, exported, and
timed beside a narrower dense network that may train as long as everything that made the student.

Every step goes on where a killed one stopped; what is done is not done again.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from understudy import __version__
from understudy._util.files import digest
from understudy._util.provenance import commit, this_machine
from understudy._util.records import Json
from understudy._util.timing import time_in_turns
from understudy.comparisons import FILE as COMPARISON
from understudy.comparisons import Call, Comparison, Contender, Recovered, Role
from understudy.compressions import FILE as COMPRESSED
from understudy.compressions import Compressed, Student
from understudy.data import Augment
from understudy.data.found import Found, find_data
from understudy.deploy.export import export
from understudy.deploy.runtimes import Runner, imported, opened
from understudy.networks.smaller import narrower
from understudy.networks.trained import trained_model
from understudy.planning.budget import Budget
from understudy.train import Recipe, Run, fit, load_recipe, prepare, train
from understudy.train.config import CONFIG
from understudy.train.recover import SETTINGS
from understudy.train.run import MODEL

from .compressing import Origin, Teaching, compress_into
from .demo_folder import DemoFolder, Tell
from .unfinished import STUDENT, Asked, Unfinished

PACKAGES = ("sklearn", "onnx", "onnxscript", "onnxruntime")
BATCHES = (1, 64)
_SAMPLES = 512  # that compression looks at; kernels stay whole, which is fitted in seconds
_ROUNDS, _SECONDS = 2000, 4.0  # of every batch


@dataclasses.dataclass(frozen=True)
class Demo:
    """All that decides what a demonstration gives; `settings` are over the recipe `wide_digits`."""

    settings: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    transform: str = "low_rank"
    ratio: float = 0.1
    recover: int = 12  # epochs
    seed: int = 0

    @property
    def recipe(self) -> Recipe:
        """How the original is trained."""
        return load_recipe("wide_digits", {**self.settings, "seed": self.seed})

    @property
    def budget(self) -> Budget:
        """Of the student."""
        return Budget.of(ratio=self.ratio)


def demonstrate(
    asked: Demo,
    out: Path,
    *,
    finish_student: Callable[[Compressed, Path], None],
    finish: Callable[[Comparison, Compressed, Path, list[str]], object],
    force: bool = False,
    report: Tell = lambda _: None,
) -> Comparison:
    """Do all of it in the folder `out`, or go on there; what is finished there already is read.

    `finish_student` and `finish` write what is to read: of the student alone, and of the whole. A ValueError
    where the folder holds something else; `force` begins anew where it holds another demonstration.
    """
    _check_packages()
    recipe, budget = asked.recipe, asked.budget
    narrower(recipe.network, 2**62)  # tells of a network without a narrower form before anything is trained
    folder = DemoFolder(out, asked, force=force)
    if (out / COMPARISON).is_file():
        report(f"{out} is finished already")
        return Comparison.load(out)
    folder.begin()
    found = _data(recipe)
    report(f"1. train the original: {recipe.network}, {recipe.epochs} epochs")
    with folder.timed("original", report) as told:
        train(recipe, out / "original", report=told)
    report(f"2. compress it to {budget} and recover it for {asked.recover} epochs, without labels")
    with folder.timed("student", report) as told:
        result = _student(asked, out, found, finish_student, told)
    made = folder.seconds
    whole = made["original"] + made["student"]
    rival = narrower(recipe.network, result.students[0].costs.params, len(found.classes))
    report(f"3. train {rival}, dense, as long as all of this: {whole:.0f} s")
    _train_for(whole, "narrower", recipe.replaced({"network": rival}), folder, report)
    teacher = {"network": rival, "teacher": str(out / "original"), "distillation": 0.9}
    report(f"4. train it with the same teacher, as long as the student had: {made['student']:.0f} s")
    _train_for(made["student"], "taught", recipe.replaced(teacher), folder, report)
    report("5. export all to ONNX, and time them in turns")
    networks = _networks(recipe, rival, out, len(found.classes))
    contenders = _contenders(networks, result, found, folder)
    comparison = Comparison(
        understudy=__version__,
        commit=commit(),
        machine=this_machine(),
        runtime=f"ONNX Runtime {imported('onnxruntime').__version__}",
        data=found.name,
        test_samples=result.quality.samples,
        seed=asked.seed,
        contenders=contenders,
        recovery=_recovered(result.students[0]),
    )
    files = [f"student/{name}" for name in ("README.md", COMPRESSED, STUDENT, "plan.json")]
    finish(comparison, result, out, [COMPARISON, *(f"{role}.onnx" for role in networks), *files])
    comparison.save(out)  # last: with it, it is finished
    return comparison


def _check_packages() -> None:
    for name in PACKAGES:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(
                f"the demo needs {name}, which cannot be imported ({error}); "
                "pip install 'understudy[demo]' brings it"
            ) from error


def _data(recipe: Recipe) -> Found:
    """The same images for all; those of recovery move as in the original's training."""
    return find_data(
        recipe.data,
        seed=recipe.seed,
        batch_size=recipe.batch_size,
        augment=Augment(padding=recipe.crop_padding, flip=recipe.flip, cutout=recipe.cutout),
        apart=True,
    )


def _student(
    asked: Demo,
    out: Path,
    found: Found,
    finish: Callable[[Compressed, Path], None],
    report: Tell,
) -> Compressed:
    """As `understudy compress NETWORK --weights original/model.safetensors --ratio … --recover …` does it."""
    folder, weights = out / "student", out / "original" / MODEL
    if (folder / COMPRESSED).is_file():
        return Compressed.load(folder)
    recipe = asked.recipe
    shared = {key: recipe.settings()[key] for key in ("seed", "batch_size", "checkpoint_seconds")}
    teaching = Teaching(asked.recover, shared)
    hashed = digest(weights)
    settings: dict[str, Any] = {"samples": _SAMPLES, "seed": asked.seed, "spatial": "unfolded"}
    place = Unfinished(
        folder,
        Asked(
            network=recipe.network,
            weights=hashed,
            data=recipe.data,
            transforms=(asked.transform,),
            budgets=(str(asked.budget),),
            epochs=asked.recover,
            settings={**settings, "recipe": SETTINGS.replaced(shared).deciding()},
        ),
        force=True,  # what lies there is of this demonstration
    )
    classes = len(found.classes)
    return compress_into(
        place,
        Origin(recipe.network, {"classes": classes}, weights.name, hashed),
        trained_model(recipe.network, weights, classes=classes),
        found,
        transforms=[asked.transform],
        budgets=[asked.budget],
        teaching=teaching if asked.recover else None,
        settings=settings,
        finish=finish,
        report=report,
    )


def _train_for(seconds: float, role: Role, recipe: Recipe, folder: DemoFolder, report: Tell) -> None:
    """Train for as many epochs as fit; a run that was begun keeps its number of them."""
    place = folder.out / role
    if (place / CONFIG).is_file():
        epochs = Run.read(place).recipe.epochs
    else:  # the first epoch warms up
        tried = fit(prepare(dataclasses.replace(recipe, epochs=2))).epochs
        epochs = max(1, int(seconds / max(0.01, min(epoch.seconds for epoch in tried))))
    with folder.timed(role, lambda _: None) as told:  # hundreds of epochs, of which the last is told
        outcome = train(dataclasses.replace(recipe, epochs=epochs), place, report=told)
    report(f"{epochs} epochs: {outcome.epoch}")


def _networks(recipe: Recipe, rival: str, out: Path, classes: int) -> dict[Role, tuple[str, nn.Module]]:
    """What is compared, by its role."""
    files: dict[Role, tuple[str, Path]] = {
        "original": (recipe.network, out / "original" / MODEL),
        "student": (recipe.network, out / "student" / STUDENT),
        "narrower": (rival, out / "narrower" / MODEL),
        "taught": (rival, out / "taught" / MODEL),
    }
    return {role: (name, trained_model(name, file, classes=classes)) for role, (name, file) in files.items()}


def _contenders(
    networks: Mapping[Role, tuple[str, nn.Module]], result: Compressed, found: Found, folder: DemoFolder
) -> tuple[Contender, ...]:
    """Every network exported, tested and timed in the runtime."""
    test = [(images, labels) for images, labels in found.test]
    runners: dict[Role, Runner] = {}
    for role, (_, network) in networks.items():
        path = folder.out / f"{role}.onnx"
        export(network, path, test[0][0][:1], overwrite=True)
        runners[role] = opened(path, "onnx")
    calls = _calls(runners, test[0][0])
    seconds = folder.seconds
    whole = seconds["original"] + seconds["student"]
    spent = {**seconds, "student": whole, "taught": seconds["original"] + seconds["taught"]}
    made: dict[Role, Contender] = {
        role: Contender(
            role=role,
            name=result.students[0].name if role == "student" else name,
            params=sum(parameter.numel() for parameter in network.parameters()),
            bytes=(folder.out / f"{role}.onnx").stat().st_size,
            error=_error(runners[role], test),
            seconds=round(spent[role], 1),
            calls=calls[role],
        )
        for role, (name, network) in networks.items()
    }
    student = result.students[0]
    accuracy, recovery = student.quality.accuracy, student.recovery
    assert accuracy is not None  # the digits have labels
    before = dataclasses.replace(
        made["student"],
        role="compressed",
        error=round(100 - accuracy, 4),
        seconds=round(whole - (recovery.seconds if recovery else 0.0), 1),
        calls=(),
    )
    return (made["original"], before, made["student"], made["narrower"], made["taught"])


def _recovered(student: Student) -> Recovered:
    if student.recovery is None:
        return "none"
    return "kept" if student.recovery.kept else "undone"


def _calls(runners: Mapping[Role, Runner], images: Tensor) -> dict[Role, tuple[Call, ...]]:
    """All in turns, batch by batch."""
    found: dict[Role, list[Call]] = {role: [] for role in runners}
    for batch in BATCHES:
        given = images[:batch]
        turns = {role: partial(run, given) for role, run in runners.items()}
        for role, taken in time_in_turns(turns, rounds=_ROUNDS, seconds=_SECONDS).items():
            best, median = (round(1000 * each, 4) for each in (taken.best, taken.median))
            found[role].append(Call(len(given), best, median, taken.count))
    return {role: tuple(each) for role, each in found.items()}


def _error(run: Runner, test: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Percent of the test images that the exported network gets wrong."""
    wrong = sum(int((run(images)[0].argmax(1) != labels).sum()) for images, labels in test)
    return round(100 * wrong / sum(len(labels) for _, labels in test), 4)
