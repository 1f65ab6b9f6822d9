"""The report in the gallery: ResNet-20 by several families, as `understudy compress` makes it.

    python benchmarks/gallery.py --weights DIR --cifar DIR
    python benchmarks/gallery.py --draw

CIFAR is the folder with `cifar-10-batches-bin`. What the command finds is kept in results/resnet20_curve, and
`--draw` makes the page of that again, docs/reports/resnet20_curve.html.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import RESULTS
from understudy.compressions import FILE, Compressed
from understudy.report import write_compression

NAME = "resnet20_curve"
RATIOS = "0.9,0.7,0.5,0.3"
TRANSFORMS = "low_rank,pivoted,kronecker,tensor_train,tucker,shuffle,hashed"
PAGE = Path(__file__).parent.parent / "docs" / "reports" / f"{NAME}.html"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("weights", "cifar"):
        parser.add_argument(f"--{name}", type=Path, default=Path(name))
    parser.add_argument("--draw", action="store_true", help="only make the page of the committed result")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "curve")
        if not given.draw:
            compress(given.weights / "resnet20_cifar10.safetensors", given.cifar, made)
            (RESULTS / NAME).mkdir(exist_ok=True)
            shutil.copyfile(made / FILE, RESULTS / NAME / FILE)
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(Path(folder)), encoding="utf-8")


def page(folder: Path) -> str:
    """The page of the committed result."""
    write_compression(Compressed.load(RESULTS / NAME), folder)
    return (folder / "index.html").read_text(encoding="utf-8")


def compress(weights: Path, data: Path, out: Path) -> None:
    """Each layer fitted by itself, accuracy on the first 1,000 test images."""
    words = ["compress", "resnet20", "--weights", weights, "--data", data, "--out", out, "--ratios", RATIOS]
    words += ["--transform", TRANSFORMS, "--quick", "--test-samples", "1000"]
    words += ["--set", "mean=0.485,0.456,0.406", "--set", "std=0.229,0.224,0.225"]
    subprocess.run([sys.executable, "-m", "understudy", *map(str, words)], check=True)


if __name__ == "__main__":
    main()
