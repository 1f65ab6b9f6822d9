"""Lets a torchvision wheel built for CUDA import beside a CPU build of torch."""

import ctypes
import importlib.util
from pathlib import Path

import torch


def declare_missing_torchvision_operators() -> None:
    """Declare the two operators that torchvision's import refers to, unless its own library brings them."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        ctypes.CDLL(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


declare_missing_torchvision_operators()
