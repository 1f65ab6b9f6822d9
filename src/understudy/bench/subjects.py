"""What takes turns in a cell: the dense layer or network, every transform's stand-in, and peers."""

from __future__ import annotations

import dataclasses
import importlib.util
import warnings
from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor, nn

from understudy._util.meta import meta_copy
from understudy.counting.trace import Example
from understudy.layers import Conv, Linear, recompute_nothing_, stand_ins
from understudy.layers.geometry import Geometry
from understudy.networks.models import create_model, example_input
from understudy.planning.planner import plan
from understudy.planning.request import Spatial
from understudy.students.cost import cost
from understudy.students.substitute import substitute
from understudy.transforms import Transform, get_transform

from .record import DENSE, Cell

_TOKENS = 16  # of a sample
_MULTIPLE = 16  # of which the ranks in networks are: runtimes lay channels out in blocks of so many
_MOST_PIXELS = 32 * 32
_VALUES = 160 * _MOST_PIXELS  # of one image of a convolution's input, as in the first stage of WRN-28-10


@dataclasses.dataclass(frozen=True)
class Subject:
    """A module that takes the cell's example, and what is known of it before it runs."""

    module: nn.Module
    params: int
    mult_adds: int | None
    moved: int | None = None


def subjects_of(cell: Cell) -> tuple[dict[str, Subject], Example]:
    """The subjects by name, the dense one first, and what they are called on."""
    torch.manual_seed(0)
    if cell.width is not None:
        return _layers(cell, cell.width)
    return _networks(cell)


def _params(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _layers(cell: Cell, width: int) -> tuple[dict[str, Subject], Example]:
    ratio = cell.ratio or 0.1
    if cell.what == "conv":
        side = max(4, min(32, int((_VALUES / width) ** 0.5)))
        x = torch.randn(cell.batch, width, side, side)
        positions = cell.batch * side**2
    else:
        x = torch.randn(cell.batch, _TOKENS, width)
        positions = cell.batch * _TOKENS

    def made(module: nn.Module, mult_adds: int) -> Subject:
        params = _params(module)
        return Subject(module, params, positions * mult_adds, 4 * (params + 2 * x.numel()))

    dense = nn.Conv2d(width, width, 1, bias=False) if cell.what == "conv" else _linear(width)
    found = {DENSE: made(dense, width * width)}
    for name in cell.transforms:
        knob = largest_knob(get_transform(name), width, ratio)
        if knob is None:
            continue
        transform = get_transform(name)(width, width, knob)
        ideal = transform.ideal_mult_adds(width, width, knob)
        layer = Conv(transform, Geometry.pointwise(2)) if cell.what == "conv" else Linear(transform)
        found[name] = made(layer, ideal)
    rank = max(1, int(ratio * width / 2))
    naive = (
        nn.Sequential(nn.Conv2d(width, rank, 1, bias=False), nn.Conv2d(rank, width, 1, bias=False))
        if cell.what == "conv"
        else nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False))
    )
    found["(naive low rank)"] = made(naive, 2 * rank * width)
    if cell.mode == "inference" and cell.runtime == "eager":
        found |= _peers(found[DENSE], ratio)
    return found, x


def _linear(width: int) -> nn.Module:
    return nn.Linear(width, width, bias=False)


def largest_knob(transform: type[Transform], width: int, ratio: float) -> int | None:
    """The largest knob within a share of the dense matrix's parameters; None where there is none."""
    legal = [
        knob
        for knob in transform.knobs(width, width)
        if transform.params(width, width, knob) <= ratio * width**2
    ]
    return legal[-1] if legal else None


def _peers(dense: Subject, ratio: float) -> dict[str, Subject]:
    """What else people use: eight-bit numbers of torch itself, tensorly-torch's layers where installed."""
    found: dict[str, Subject] = {}
    if isinstance(dense.module, nn.Linear):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it will move to another package
            eight_bit = torch.ao.quantization.quantize_dynamic(
                nn.Sequential(dense.module), {nn.Linear}, dtype=torch.qint8
            )
        found["(torch int8)"] = dataclasses.replace(dense, module=eight_bit, moved=None)
    elif importlib.util.find_spec("tltorch") is not None:
        tltorch = importlib.import_module("tltorch")
        tucker = tltorch.FactorizedConv.from_conv(
            dense.module, rank=ratio, factorization="tucker", fixed_rank_modes="spatial"
        )
        found["(tensorly tucker)"] = Subject(tucker, _params(tucker), None)
    return found


class Encoder(nn.Module):
    """Encoder layers of 384 channels: six with twelve heads are the shape of MiniLM-L6, without embeddings.

    Twelve with six heads, on patches of 16 × 16 pixels, are that of a small vision transformer.
    """

    def __init__(self, layers: int, heads: int, patch: int = 0) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            384, heads, 1536, activation="gelu", batch_first=True, norm_first=bool(patch)
        )
        self.patches = nn.Conv2d(3, 384, patch, stride=patch) if patch else None
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(384, 384)

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, tokens, 384), or images, to one vector each."""
        tokens = x if self.patches is None else self.patches(x).flatten(2).mT
        out: Tensor = self.head(self.encoder(tokens).mean(1))
        return out


def _networks(cell: Cell) -> tuple[dict[str, Subject], Example]:
    dense: nn.Module
    if cell.what == "minilm":
        dense, example = Encoder(6, 12), torch.randn(cell.batch, 128, 384)
    elif cell.what == "vit":
        dense, example = Encoder(12, 6, patch=16), torch.randn(cell.batch, 3, 224, 224)
    else:
        dense = create_model(cell.what)
        example = _batched(example_input(cell.what, dense, None), cell.batch)
    dense = dense.eval()
    found = {DENSE: Subject(dense, _params(dense), cost(meta_copy(dense), example).mult_adds)}
    for asked in cell.transforms:
        made = plan(
            dense,
            get_transform(transform_of(asked)).name,
            params=cell.params,
            ratio=cell.ratio,
            spatial=way_of(asked),
            multiple=_MULTIPLE,
            example=example,
        )
        student = substitute(dense, made, init="fresh").eval()
        found[asked] = Subject(student, made.params, made.ideal_mult_adds)
    return found, example


def transform_of(asked: str) -> str:
    """The transform of `low_rank:inside`."""
    return asked.partition(":")[0]


def way_of(asked: str) -> Spatial:
    """The way of `low_rank:inside`; a ValueError names the ways where it is none of them."""
    way = asked.partition(":")[2] or "auto"
    for known in get_args(Spatial):
        if way == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"{asked}: {way!r} is not one of {', '.join(get_args(Spatial))}")


def _batched(one: Example, batch: int) -> Tensor:
    if not isinstance(one, Tensor):
        raise ValueError("only networks of one input are benchmarked")
    return torch.randn(batch, *one.shape[1:])


def training_step(module: nn.Module, example: Example) -> Callable[[], object]:
    """Forward and backward to the weights and the input, nothing recomputed: as `train` with memory left."""
    assert isinstance(example, Tensor)
    x = example.detach().clone().requires_grad_()
    module.train()
    recompute_nothing_(layer for _, layer in stand_ins(module))

    def run() -> None:
        out = module(x)
        first = out[0] if isinstance(out, tuple) else out
        first.sum().backward()
        x.grad = None
        module.zero_grad()

    return run
