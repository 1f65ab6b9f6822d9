"""What substitution does to a trained network before any training: CIFAR-10 accuracy by transform and budget.

    python benchmarks/trained.py WEIGHTS.safetensors CIFAR_FOLDER [--model resnet56] [--write]

WEIGHTS is a state dict of the built-in network; CIFAR_FOLDER holds `test_batch.bin` in the official binary
layout. Each student is fitted to the trained weights (`init="project"`) and evaluated as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor, nn

import understudy as us
from measure import write
from understudy._util.quantities import format_count
from understudy._util.text_tables import table

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RATIOS = (0.7, 0.5, 0.3)


def test_images(folder: Path) -> tuple[Tensor, Tensor]:
    records = np.fromfile(folder / "test_batch.bin", dtype=np.uint8).reshape(-1, 3073)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32)).float() / 255
    images = (images - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
    return images, torch.from_numpy(records[:, 0]).long()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    right = sum(
        int((model(batch).argmax(1) == wanted).sum())
        for batch, wanted in zip(images.split(500), labels.split(500), strict=True)
    )
    return right / len(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy of a trained network right after substitution.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="resnet56")
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/trained.json")
    arguments = parser.parse_args()
    model = us.create_model(arguments.model)
    model.load_state_dict(load_file(arguments.weights))
    images, labels = test_images(arguments.data)
    example = images[:1]
    dense = accuracy(model, images, labels)
    cells: list[dict[str, Any]] = []
    for spatial in ("unfolded", "separable"):
        survey = us.sites(model, example)
        for name in us.list_transforms():
            for ratio in RATIOS if name != "dense" else (1.0,):
                cell: dict[str, Any] = {"transform": name, "spatial": spatial, "ratio": ratio}
                try:
                    if name == "dense":
                        plan = us.plan(survey, name, scale=1, spatial=spatial)
                    else:
                        plan = us.plan(survey, name, ratio=ratio, spatial=spatial)
                except us.BudgetError as error:
                    cells.append(cell | {"unreachable": str(error)})
                    continue
                student = us.substitute(model, plan)
                cell |= {"params": plan.params, "mult_adds": plan.mult_adds}
                cells.append(cell | {"accuracy": accuracy(us.merge(student), images, labels)})
                print(cells[-1], flush=True)
    rows = [
        (
            cell["spatial"],
            cell["transform"],
            f"{cell['params']:,}",
            format_count(cell["mult_adds"]),
            f"{100 * cell['accuracy']:.2f}",
        )
        for cell in cells
        if "accuracy" in cell
    ]
    title = f"{arguments.model}: {100 * dense:.2f} % of {len(labels)} test images before substitution"
    columns = ["spatial", "transform", ">parameters", ">mult-adds", ">accuracy %"]
    Console(width=100).print(table(columns, rows, title=title))
    if arguments.write:
        result = {"model": arguments.model, "images": len(labels), "dense_accuracy": dense, "students": cells}
        print(write("trained", result))


if __name__ == "__main__":
    main()
