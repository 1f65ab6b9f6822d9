"""The three recipes of the paper on their real networks and shapes: started, killed, resumed, finished.

    python benchmarks/recipes.py [RECIPE ...] [--write]

The data is made up, in the layouts of the real files: CIFAR-10 as its binary batches, ImageNet as a thousand
class folders of JPEGs. The teacher is a fresh dense network. Only what a CPU cannot carry is changed: the
number of images, the batch and the epochs. Each recipe runs once to the end, and once more in a process that
is killed (SIGKILL) after a checkpoint and taken up by the same call; both must leave the same bytes.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from measure import write
from understudy._util.text_tables import table
from understudy.counting.trace import trace
from understudy.data import DataSet
from understudy.data.cifar import CIFAR10
from understudy.train import Recipe, Run, load_recipe, train
from understudy.train import job as job_module
from understudy.train.student import dense_network

# The paper's smaller budgets; 3 steps an epoch, the last batch uneven.
STUDENTS: dict[str, dict[str, Any]] = {
    "wrn_28_10_cifar10": {"transform": "shuffle", "params": "1.2M"},
    "darts_cifar10": {"transform": "low_rank", "params": "0.83M"},
    "wrn_50_2_imagenet": {"transform": "tensor_train", "params": "4.35M"},
}
CHANGES: dict[str, Any] = {
    "train_images": 11,
    "batch_size": 4,
    "epochs": 2,
    "workers": 0,
    "checkpoint_seconds": 0.0,
}
STEPS = 6
TEST_IMAGES = 8
KILLED_AFTER = 3  # steps: a whole epoch, so that the second one starts from a checkpoint
PATIENCE_SECONDS = 900


def make_cifar(folder: Path) -> None:
    """The official binary files, full of random bytes."""
    random = np.random.default_rng(0)
    layout = CIFAR10.layouts["binary"]
    (folder / layout.top).mkdir(parents=True)
    for name in (*layout.train, layout.test):
        count = 10_000 if name in layout.train else TEST_IMAGES
        labels = random.integers(10, size=(count, 1), dtype=np.uint8)
        pixels = random.integers(256, size=(count, 3072), dtype=np.uint8)
        (folder / layout.top / name).write_bytes(np.hstack([labels, pixels]).tobytes())


def make_imagenet(folder: Path) -> None:
    """A thousand class folders, one random JPEG in each."""
    from PIL import Image

    random = np.random.default_rng(0)
    pictures = []
    for _ in range(16):
        height, width = (int(side) for side in random.integers(200, 500, size=2))
        stream = io.BytesIO()
        coarse = random.integers(256, size=(8, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((width, height)).save(stream, "JPEG")
        pictures.append(stream.getvalue())
    for part in ("train", "val"):
        for label in range(1000):
            home = folder / part / f"n{label:08d}"
            home.mkdir(parents=True)
            (home / "0.JPEG").write_bytes(pictures[label % len(pictures)])


def run_to_the_end(recipe: Recipe, out: Path, data: Path, log: Path) -> None:
    """One process's part: call `train`, and write down every step."""
    torch.set_num_threads(1)
    whole = job_module.load_data

    def few_tests(*arguments: Any, **options: Any) -> DataSet:
        return whole(*arguments, **options).take(test=TEST_IMAGES)

    job_module.load_data = few_tests
    with log.open("a", encoding="utf-8") as stream:

        def watch(progress: Any, _: int, loss: float) -> None:
            record = {"step": progress.step, "loss": loss, "time": time.monotonic()}
            print(json.dumps(record), file=stream, flush=True)

        train(recipe, out, data_folder=data, watch=watch)


def start(recipe: Recipe, out: Path, data: Path, log: Path) -> subprocess.Popen[bytes]:
    """`run_to_the_end` in a process of its own."""
    settings = log.with_suffix(".recipe.json")
    settings.write_text(json.dumps(recipe.to_dict()), encoding="utf-8")
    return subprocess.Popen([sys.executable, __file__, "--run", str(settings), str(out), str(data), str(log)])


def steps(log: Path) -> list[dict[str, Any]]:
    """What a process wrote down so far; the last line may be half written."""
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return [json.loads(line) for line in lines]


def kill_after(steps_wanted: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(steps(log)) <= steps_wanted:  # the checkpoint of that step is written before the next step ends
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"the run ended ({process.poll()}) or hung before step {steps_wanted + 1}")
        time.sleep(0.05)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        raise RuntimeError(f"the run ended with {process.returncode} before it could be killed")


def finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait(PATIENCE_SECONDS):
        raise RuntimeError(f"the run ended with exit code {process.returncode}")


def prove(name: str, data: Path, folder: Path) -> dict[str, Any]:
    """One recipe, whole and killed; everything that must hold is checked."""
    base = load_recipe(name)
    classes = 1000 if base.data == "imagenet" else 10
    teacher = dense_network(base, classes, training=False)
    weights = folder / "teacher.safetensors"
    folder.mkdir()
    save_file(teacher.state_dict(), weights)
    recipe = base.replaced({**CHANGES, **STUDENTS[name], "teacher": str(weights)})
    side = 224 if base.data == "imagenet" else 32
    maps = trace(teacher, torch.zeros(1, 3, side, side)).outputs

    finish(start(recipe, folder / "whole", data, folder / "whole.log"))
    cut = start(recipe, folder / "cut", data, folder / "cut.log")
    kill_after(KILLED_AFTER, cut, folder / "cut.log")
    checkpoints = [path.name for path in Run.read(folder / "cut").checkpoints()]
    finish(start(recipe, folder / "cut", data, folder / "resumed.log"))

    whole, resumed = (steps(folder / f"{log}.log") for log in ("whole", "resumed"))
    losses = {record["step"]: record["loss"] for record in whole}
    files = [(folder / run / "model.safetensors").read_bytes() for run in ("whole", "cut")]
    seconds = [after["time"] - before["time"] for before, after in itertools.pairwise(whole)]
    facts = {
        "steps": len(whole),
        "all_losses_finite": all(math.isfinite(loss) for loss in losses.values()),
        "checkpoints_at_the_kill": checkpoints,
        "resumed_at_step": resumed[0]["step"],
        "same_losses_after_resuming": all(losses[record["step"]] == record["loss"] for record in resumed),
        "same_bytes_as_uninterrupted": files[0] == files[1],
        "seconds_a_step": round(min(seconds), 3),
        "image": [3, side, side],
        "batch": recipe.batch_size,
        "teacher_params": sum(parameter.numel() for parameter in teacher.parameters()),
        "transform": recipe.request.label,
        "budget": str(recipe.request.budget),
        "student_params": Run.read(folder / "whole").outcome().params,
        "taps": {tap: list(maps[tap][-1][1:]) for tap in recipe.taps},
        "auxiliary_head_trained": auxiliary_moved(recipe, classes, folder / "whole") or None,
        "drop_path_of_epochs": [recipe.drop_path * epoch / recipe.epochs for epoch in range(recipe.epochs)],
        "losses": list(losses.values()),
    }
    must = ("all_losses_finite", "same_losses_after_resuming", "same_bytes_as_uninterrupted")
    failed = [fact for fact in must if not facts[fact]]
    if failed or len(whole) != STEPS or not 1 < facts["resumed_at_step"] <= STEPS:
        raise RuntimeError(f"{name}: {', '.join(failed) or 'steps are missing'}: {facts}")
    if recipe.auxiliary and not facts["auxiliary_head_trained"]:
        raise RuntimeError(f"{name}: the auxiliary head was not trained")
    return facts


def auxiliary_moved(recipe: Recipe, classes: int, run: Path) -> bool:
    """Whether training changed every parameter of the auxiliary head; False where there is none."""
    fresh = dense_network(recipe, classes, training=True)
    trained = load_file(Run.read(run).checkpoints()[0])
    heads = [(name, value) for name, value in fresh.named_parameters() if name.startswith("auxiliary.")]
    return bool(heads) and all(not torch.equal(trained[f"network.{name}"], value) for name, value in heads)


def main() -> None:
    if sys.argv[1:2] == ["--run"]:
        # A torchvision built for CUDA does not import beside a CPU build of torch; the tests know how.
        sys.path.append(str(Path(__file__).parents[1] / "tests"))
        import conftest  # noqa: F401

        settings, out, data, log = map(Path, sys.argv[2:])
        run_to_the_end(Recipe.from_dict(json.loads(settings.read_text())), out, data, log)
        return
    parser = argparse.ArgumentParser(description="The paper's recipes, killed and resumed on real shapes.")
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help=f"of {', '.join(STUDENTS)}")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/recipes.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        made = {"cifar10": make_cifar, "imagenet": make_imagenet}
        for name in arguments.recipes or STUDENTS:
            data = root / load_recipe(name).data
            if not data.exists():
                made[data.name](data)
            results[name] = prove(name, data, root / name)
            print(f"{name}: {results[name]['steps']} steps, same bytes", flush=True)
    rows = [
        (
            name,
            f"{facts['teacher_params']:,}",
            f"{facts['student_params']:,} ({facts['transform']})",
            f"{facts['seconds_a_step']:.2f}",
            f"{facts['resumed_at_step']} of {facts['steps']}",
            "yes" if facts["same_bytes_as_uninterrupted"] else "no",
        )
        for name, facts in results.items()
    ]
    columns = ("recipe", "teacher", "student", "s/step", "resumed at", "same bytes")
    Console().print(table(columns, rows))
    if arguments.write:
        print(write("recipes", {"changes": CHANGES, "recipes": results}))


if __name__ == "__main__":
    main()
