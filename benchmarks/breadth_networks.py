"""Networks that nobody here wrote, with random weights and an example each: nothing is downloaded."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Example = Any
Made = tuple[nn.Module, Example]

_LARGE = (224, 384)  # pixels, where a network says nothing of its own size
_SIDES = (64, 96, 128, 160, 224, 256)  # of an image, the first that a network takes
_VIDEO = ("mc3_18", "mvit", "r2plus1d", "r3d", "s3d", "swin3d")
_DETECTORS = ("rcnn", "retinanet", "fcos", "ssd")
_HUGE = re.compile(
    "huge|giant|enormous|large|xxl|_xl|_[lhg]_|_[lhg]$|so400|_7b|_3b|_1b"
)  # never the smallest
_NOT_IN_QUESTION = ("quantized_", "raft_")  # integers, and the flow between two images


@functools.cache
def allow_torchvision() -> None:
    """Declare the operators whose library does not load beside a CPU build of torch, and give one a body."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise SystemExit("torchvision is not installed: pip install torchvision")
    try:
        ctypes.CDLL(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", schema)
        torch.library.impl("torchvision::nms", "CPU", _best_boxes)
        import torchvision

        torchvision.extension._has_ops = lambda: True  # `nms` asks; what reads between pixels has a fallback


def _best_boxes(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The boxes that no better one overlaps by more than a threshold, the best first."""
    from torchvision.ops import box_iou

    order = scores.argsort(descending=True, stable=True)
    overlaps = box_iou(boxes[order], boxes[order]) > threshold
    kept = torch.ones(len(order), dtype=torch.bool)
    for place in range(len(order)):
        if kept[place]:
            kept[place + 1 :] &= ~overlaps[place, place + 1 :]
    return order[kept]


def names(smallest: dict[str, str]) -> list[str]:
    """All networks; `smallest` names the smallest of every module of timm."""
    import torchvision

    from breadth_transformers import ARCHITECTURES

    vision = [name for name in torchvision.models.list_models() if not name.startswith(_NOT_IN_QUESTION)]
    found = [f"timm:{name}" for name in smallest.values()]
    found += [f"torchvision:{name}" for name in vision]
    return found + [f"transformers:{name}" for name in ARCHITECTURES]


def smallest_of_timm() -> dict[str, str]:
    """For every module of timm the smallest network, but for those of its own tests."""
    import timm

    found = {}
    for module in timm.list_modules():
        members = [name for name in timm.list_models(module=module) if not name.startswith("test_")]
        likely = [name for name in members if not _HUGE.search(name)] or members
        sizes = {name: _size(timm.create_model, name) for name in likely}
        found[module] = min(sizes, key=lambda name: sizes[name])
    return found


def _size(make: Callable[[str], nn.Module], name: str) -> int:
    try:
        with torch.device("meta"):
            model = make(name)
    except (RuntimeError, NotImplementedError, ValueError):  # it looks at values of its own
        model = make(name)
    return sum(parameter.numel() for parameter in model.parameters())


def make(name: str) -> Made:
    """A network in evaluation mode, and the smallest example that it takes."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source, _, rest = name.partition(":")
        if source == "timm":
            return _from_timm(rest)
        if source == "torchvision":
            return _from_torchvision(rest)
        from breadth_transformers import made

        return made(rest)


def _from_timm(name: str) -> Made:
    import timm

    model = timm.create_model(name).eval()
    config = model.pretrained_cfg
    channels, *size = config.get("input_size") or (3, *_LARGE)
    sides = () if config.get("fixed_input_size") else _SIDES
    shapes = [(1, channels, side, side) for side in sides if side < size[0]]
    return model, _first_that_runs(model, [*shapes, (1, channels, *size)])


def _from_torchvision(name: str) -> Made:
    from torchvision import models

    if any(part in name for part in _DETECTORS):
        sizes = {} if "ssd" in name else {"min_size": 128, "max_size": 128}
        model = models.get_model(name, weights=None, weights_backbone=None, **sizes).eval()
        side = 320 if "ssd" in name else 128
        return model, ([torch.rand(3, side, side)],)
    options: dict[str, Any] = {"weights": None}
    if any(part in name for part in ("deeplab", "fcn", "lraspp")):
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = True
    model = models.get_model(name, **options).eval()
    if name.startswith(_VIDEO):
        shapes: list[tuple[int, ...]] = [
            (1, 3, frames, side, side) for frames, side in ((4, 64), (16, 64), (16, 112), (16, 224))
        ]
    else:
        shapes = [(1, 3, side, side) for side in _SIDES]
    return model, _first_that_runs(model, shapes)


def _first_that_runs(model: nn.Module, shapes: list[tuple[int, ...]]) -> Tensor:
    """A random example of the first of these shapes on which the network gives finite numbers."""
    for shape in shapes[:-1]:
        example = torch.randn(shape)
        try:
            with torch.no_grad():
                model(example)
        except (RuntimeError, ValueError, AssertionError, IndexError, ZeroDivisionError):
            continue
        return example
    return torch.randn(shapes[-1])
