"""How large the files of students are beside the bound, 4 bytes a parameter × 1.1 + 64 kB: every transform.

    python benchmarks/file_sizes.py [--write]

Networks with fresh weights, and norms whose numbers differ as those of trained ones do: equal constants are
held once. Every ONNX file is run by OpenVINO as well, beside PyTorch. A transform that a budget is too small
for is left out. `--write` saves results/file_sizes.json and fills the table of docs/deployment.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import understudy as us
from marks import between_marks
from measure import RESULTS, write
from understudy.deploy import formats
from understudy.deploy.export import output_error
from understudy.deploy.graph import capture, outputs, ready
from understudy.deploy.runtimes import opened
from understudy.experiments import every_transform

NETWORKS: dict[str, dict[str, Any]] = {
    "wrn_28_10": {"params": "1.2M"},
    "resnet56": {"ratio": 0.15},
    "wrn_16_1": {"ratio": 0.15},
}
EXAMPLE = (1, 3, 32, 32)
PAGE = Path(__file__).parent.parent / "docs" / "deployment.md"


def bound(params: int) -> float:
    """What a file shall take at most."""
    return 4 * params * 1.1 + 65_536


def trained_alike(name: str) -> nn.Module:
    """A network whose norms all differ."""
    torch.manual_seed(0)
    network = us.create_model(name)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d) and module.running_mean is not None:
            for tensor in (module.weight.data, module.bias.data, module.running_mean):
                tensor.uniform_(0.5, 1.5)
    return network


def measured() -> list[dict[str, Any]]:
    """The bytes of every file."""
    found: list[dict[str, Any]] = []
    for name, budget in NETWORKS.items():
        network = trained_alike(name)
        for transform in every_transform():
            try:
                plan = us.plan(network, transform, **budget)
            except us.BudgetError as error:
                print(error)
                continue
            student = ready(us.substitute(network, plan, init="fresh"))
            params = sum(parameter.numel() for parameter in student.parameters())
            one: dict[str, Any] = {"network": name, "transform": transform, "params": params}
            with tempfile.TemporaryDirectory() as folder:
                graph = capture(student, torch.zeros(EXAMPLE))
                for kind, suffix in (("onnx", ".onnx"), ("openvino", ".xml")):
                    path = Path(folder) / f"student{suffix}"
                    formats.write(graph, path, kind, name)  # type: ignore[arg-type]
                    files = formats.written(path)
                    one[kind] = sum(file.stat().st_size for file in files)
                x = torch.randn(EXAMPLE)
                read = opened(Path(folder) / "student.onnx", "openvino")(x)
                one["error_of_onnx_in_openvino"] = output_error(read, outputs(student, x))
            found.append(one)
            print(one, flush=True)
    return found


def lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """A row for every transform: bytes as a share of the bound, by network and format."""
    heads = [f"`{name}`, {kind}" for name in NETWORKS for kind in ("ONNX", "OpenVINO")]
    rows = [f"| | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    held = {(one["network"], one["transform"]): one for one in found}
    for transform in dict.fromkeys(one["transform"] for one in found):
        cells = []
        for name in NETWORKS:
            one = held.get((name, transform))
            for kind in ("onnx", "openvino"):
                share = None if one is None else one[kind] / bound(one["params"])
                cells.append("" if share is None else f"**{share:.2f}**" if share > 1 else f"{share:.2f}")
        rows.append(f"| `{transform}` | {' | '.join(cells)} |")
    return rows


def filled(page: str, found: Sequence[dict[str, Any]]) -> str:
    """The page with its table as the result says."""
    return between_marks(page, "file sizes", "\n".join(lines(found)) + "\n\n")


def committed() -> list[dict[str, Any]]:
    """The files of the result."""
    found: list[dict[str, Any]] = json.loads((RESULTS / "file_sizes.json").read_text())["files"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="save to benchmarks/results/file_sizes.json")
    given = parser.parse_args()
    found = measured()
    print("\n".join(lines(found)))
    if given.write:
        print(write("file_sizes", {"files": found}))
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
