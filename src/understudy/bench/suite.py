"""Which cells a benchmark has: layers of many widths, whole networks, or a few of each for a quick look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from understudy.transforms import known_transforms

from .record import Cell, Mode, Runtime

RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)
WIDTHS = (64, 160, 512, 640, 1024, 2048, 4096)
BATCHES = (1, 32, 128)
NETWORKS: dict[str, tuple[int | None, float | None]] = {  # parameters of the students, or a share of them
    "wrn_28_10": (1_200_000, None),
    "wrn_50_2": (17_600_000, None),
    "darts": (None, 0.3),
    "vit": (None, 0.5),
    "minilm": (None, 0.5),
}
FAMILIES = ("low_rank", "shuffle", "tensor_train", "tucker", "hashed")
INSIDE = ("low_rank:inside", "shuffle:inside")  # of a network with convolutions
SHAPES = ("vit", "minilm")  # networks of shapes alone, without kernels
_LAYER_SHARE = 0.1  # of a dense layer's parameters


def layer_cells(
    transforms: Sequence[str],
    widths: Sequence[int] = WIDTHS,
    batches: Sequence[int] = BATCHES,
    runtimes: Sequence[Runtime] = ("eager",),
    modes: Sequence[Mode] = ("inference", "training"),
) -> list[Cell]:
    """Convolutions and tokens of every width; a training step only in eager mode."""
    return [
        Cell(what, width, batch, runtime, mode, tuple(transforms), ratio=_LAYER_SHARE)
        for what in ("conv", "tokens")
        for width in widths
        for batch in batches
        for runtime in runtimes
        for mode in modes
        if mode == "inference" or runtime == "eager"
    ]


def network_cells(
    network: str,
    transforms: Sequence[str] | None = None,
    *,
    params: int | None = None,
    ratio: float | None = None,
    batches: Sequence[int] = (8, 1),
    runtimes: Sequence[Runtime] = RUNTIMES,
    modes: Sequence[Mode] = ("inference",),
) -> list[Cell]:
    """One network in every runtime; the budget is the published one where none is given."""
    if params is None and ratio is None:
        params, ratio = NETWORKS.get(network, (None, 0.3))
    if transforms is None:
        transforms = FAMILIES if network in SHAPES else (*FAMILIES, *INSIDE)
    return [
        Cell(network, None, batch, runtime, mode, tuple(transforms), params, ratio)
        for mode in modes
        for batch in batches
        for runtime in runtimes
        if mode == "inference" or runtime == "eager"
    ]


def quick_cells() -> list[Cell]:
    """A few small ones."""
    layers = layer_cells(("low_rank", "shuffle", "tensor_train"), (160, 640), (8,), modes=("inference",))
    return [*layers, *network_cells("wrn_16_2", ("low_rank",), ratio=0.3, batches=(1,), runtimes=("eager",))]


def whole_suite(runtimes: Sequence[Runtime] = RUNTIMES) -> list[Cell]:
    """Everything: networks first, since they are what people run."""
    cells: list[Cell] = []
    for network in NETWORKS:
        cells += network_cells(network, runtimes=runtimes)
        cells += network_cells(network, batches=(8,), runtimes=("eager",), modes=("training",))
    names = [name for name in known_transforms() if name != "dense"]
    layers = layer_cells(names, modes=("inference",)) + layer_cells(FAMILIES, modes=("training",))
    return [*cells, *layers]
