"""What is known of the processor, where PyTorch does not use all of it."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

import torch

_CPUINFO = Path("/proc/cpuinfo")


@functools.cache
def products_lag() -> bool:
    """Whether matrices are multiplied at half the pace at which they are convolved.

    PyTorch multiplies by MKL, which has no code with AVX-512 for processors of AMD, and convolves by oneDNN,
    which asks a processor what it can (`benchmarks/products.py`).
    """
    capability = torch.backends.cpu.get_cpu_capability()
    return torch.backends.mkl.is_available() and capability == "AVX512" and "AuthenticAMD" in _vendor()


def _vendor() -> str:
    """A text in which the maker of the processor is named, on Linux and Windows."""
    try:
        with _CPUINFO.open(encoding="utf-8") as lines:
            return next((line for line in lines if line.startswith("vendor_id")), "")
    except OSError:
        return platform.processor()
