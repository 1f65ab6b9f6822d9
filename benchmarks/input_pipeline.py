"""Cost of the input pipeline beside a WRN-16-2 training step, and beside torchvision's transforms per image.

    python benchmarks/input_pipeline.py [--repeats 10] [--write]

Batch 128 of CIFAR's shape, random pixels: crop with padding 4, flip, normalise, Cutout 16. "batches" is
`understudy.data.Batches`: a whole epoch of 50,000 images, its order and random numbers included, divided by
its steps. "torchvision" makes a PIL image of each and applies RandomCrop, RandomHorizontalFlip, ToTensor,
Normalize and the published Cutout, without worker processes. "step" is forward, backward and SGD of WRN-16-2.
They run interleaved; only their ratios mean something.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor

import understudy as us
from measure import best_of, write
from understudy._util.text_tables import table
from understudy.data import Augment, Batches
from understudy.data.cifar import CIFAR10

BATCH, IMAGES = 128, 50_000
AUGMENT = Augment(padding=4, flip=True, cutout=16)
TARGET_PERCENT = 5.0


def training_step() -> Callable[[], object]:
    model = us.create_model("wrn_16_2").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    x, labels = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))

    def run() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return run


def whole_epoch(batches: Batches) -> Callable[[], object]:
    def run() -> None:
        for _batch in batches.epoch(0):
            pass

    return run


def image_by_image(images: Tensor, labels: Tensor) -> Callable[[], object]:
    # A torchvision built for CUDA does not import beside a CPU build of torch; the tests know how to help it.
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from PIL import Image
    from torchvision import transforms

    import conftest  # noqa: F401

    def published_cutout(image: Tensor, length: int = AUGMENT.cutout) -> Tensor:
        height, width = image.shape[1:]
        mask = np.ones((height, width), np.float32)
        y, x = np.random.randint(height), np.random.randint(width)
        y1, y2 = np.clip(y - length // 2, 0, height), np.clip(y + length // 2, 0, height)
        x1, x2 = np.clip(x - length // 2, 0, width), np.clip(x + length // 2, 0, width)
        mask[y1:y2, x1:x2] = 0.0
        return image * torch.from_numpy(mask).expand_as(image)

    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=AUGMENT.padding),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(CIFAR10.mean, CIFAR10.std),
            published_cutout,
        ]
    )
    rows = (
        images[:BATCH].permute(0, 2, 3, 1).contiguous().numpy()
    )  # (B, 32, 32, 3), as torchvision keeps CIFAR
    return lambda: (torch.stack([transform(Image.fromarray(row)) for row in rows]), labels[:BATCH])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/input_pipeline.json")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8)
    labels = torch.randint(10, (IMAGES,))
    batches = Batches(images, labels, BATCH, augment=AUGMENT, mean=CIFAR10.mean, std=CIFAR10.std)
    functions = {
        "step": training_step(),
        "batches": whole_epoch(batches),
        "torchvision": image_by_image(images, labels),
    }
    times_ms = best_of(functions, arguments.repeats)
    times_ms["batches"] /= len(batches)
    percent = {name: 100 * times_ms[name] / times_ms["step"] for name in times_ms}
    rows = [(name, f"{times_ms[name]:.2f}", f"{percent[name]:.2f}") for name in times_ms]
    title = f"batch {BATCH}, {torch.get_num_threads()} threads, least of {arguments.repeats}"
    Console(width=100).print(table(["", ">ms a batch", ">% of a step"], rows, title=title))
    speedup = times_ms["torchvision"] / times_ms["batches"]
    print(f"torchvision takes {speedup:.1f} times as long as batches; target: {TARGET_PERCENT:g} % of a step")
    result: dict[str, Any] = {
        "batch": BATCH,
        "images": IMAGES,
        "repeats": arguments.repeats,
        "time_ms": {name: round(value, 3) for name, value in times_ms.items()},
        "percent_of_step": {name: round(percent[name], 3) for name in ("batches", "torchvision")},
        "torchvision_over_batches": round(speedup, 2),
        "target_percent": TARGET_PERCENT,
    }
    if arguments.write:
        print(write("input_pipeline", result))


if __name__ == "__main__":
    main()
