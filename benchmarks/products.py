"""Products of matrices beside 1×1 convolutions, which PyTorch gives to different libraries.

    python benchmarks/products.py [--write]

Vectors in rows, as images of sixteen samples with channels last. On processors of AMD with AVX-512 products
lag; there layers of a student convolve. `understudy._util.processor` says so in general.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.nn.functional as F

from measure import best_of, write
from understudy._util.processor import products_lag
from understudy.transforms.products import convolved

ROWS, WIDTHS, ROUNDS = (512, 2048, 8192), (64, 160, 640), 5


def measured(rows: int, width: int, out: int) -> dict[str, Any]:
    """Mult-adds a second of both, in billions."""
    x, matrix = torch.randn(rows, width), torch.randn(out, width)
    with torch.inference_mode():
        calls = {"product": lambda: F.linear(x, matrix), "convolution": lambda: convolved(x, matrix)}
        taken = best_of(calls, ROUNDS)
    found = {key: round(rows * width * out / time / 1e6, 1) for key, time in taken.items()}
    return {"rows": rows, "in": width, "out": out, "gmac_s": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/products.json")
    given = parser.parse_args()
    shapes = [
        (rows, *shape) for rows in ROWS for width in WIDTHS for shape in ((width, width), (width, width // 8))
    ]
    found = [measured(*shape) for shape in shapes]
    ratios = sorted(one["gmac_s"]["convolution"] / one["gmac_s"]["product"] for one in found)
    summary = {
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "products_lag": products_lag(),
        "median_of_convolution_to_product": round(ratios[len(ratios) // 2], 2),
    }
    print(summary, *found, sep="\n")
    if given.write:
        write("products", {"summary": summary, "shapes": found})


if __name__ == "__main__":
    main()
