"""Run a network over a few unlabelled batches, and keep what each of its sites saw."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from understudy._util.full_precision import full_precision
from understudy._util.guard import the_network
from understudy._util.quantities import parse_count
from understudy.counting.operations import UnknownOperationError
from understudy.layers.dense import DenseMap, the_dense_map
from understudy.layers.opening import opened
from understudy.planning.sites import Include, Sites, sites

from .calibration import Calibration, SiteMoments
from .inputs import Batch, DataError, OutputOf, first_sample, read_batches
from .moments import Moments
from .probing import times_foretold
from .rows import input_rows, output_rows, position_count, sample_positions
from .running import Watch, pass_through, run, watching

SAMPLES = 1024
POSITIONS = 64  # of each sample: as good as all of them, and much quicker
GRADIENT_SAMPLES = 256
_MEMORY = "4G"  # bytes of moments held at a time


@torch.inference_mode(False)
@full_precision()
def calibrate(
    model: nn.Module,
    data: Iterable[Any] | Tensor,
    *,
    include: Include | None = None,
    exclude: Sequence[str] | None = None,
    samples: int = SAMPLES,
    positions: int = POSITIONS,
    gradients: bool = True,
    output_of: OutputOf | None = None,
    memory: int | str = _MEMORY,
    seed: int = 0,
    watch: Watch = lambda *_: None,
) -> Calibration:
    """The moments of every site's input over at most `samples` inputs; the model is not changed.

    `data` is any iterable of inputs: tensors, `(inputs, labels)` of which the labels are not looked at, or
    dictionaries. `positions` pixels or tokens of each sample are looked at, drawn by `seed`. With `gradients`
    one backward pass also tells how much each layer's outputs matter, and an error of each layer is tried on
    a few samples, since that may matter far more; `output_of` takes the tensor to be kept of what the network
    returns, by default the first. Layers whose moments do not fit into `memory` bytes together are looked at
    in several runs.

    >>> import torch, understudy as us
    >>> us.calibrate(us.create_model("wrn_10_1"), torch.randn(8, 3, 16, 16))
    <Calibration: 8 layers of WideResNet, 8 samples>
    """
    the_network(model, copied=True, run=True)
    batches = read_batches(data, samples)
    survey = survey_of(model, batches[0], include, exclude)
    twin = opened(copy.deepcopy(model)).eval().requires_grad_(False)
    layers = dense_layers(twin, survey)
    groups = _groups(layers, parse_count(memory))
    found: dict[str, list[Moments]] = {}
    for number, group in enumerate(groups):
        watch("looking at the inputs of the layers", number, len(groups))
        found |= _input_moments(twin, group, batches, positions, seed)
    for path, moments in found.items():
        if not all(group.is_finite() for group in moments):
            raise DataError(f"the input of {path!r} holds NaN or infinity on these data")
    gram: dict[str, Tensor] = {}
    if gradients:
        watch("looking at what their outputs are worth", len(groups), len(groups))
        gram = _output_gradients(twin, layers, batches, seed, output_of)
    seen = {
        path: _site_moments(moments, gram.get(path)) for path, moments in found.items() if moments[0].count
    }
    if gram:
        for path, factor in times_foretold(twin, layers, seen, batches, output_of, watch).items():
            seen[path] = dataclasses.replace(seen[path], gradient=factor * gram[path])
    idle = tuple(path for path in layers if path not in seen)
    return Calibration(type(model).__name__, sum(batch.size for batch in batches), seen, idle)


def survey_of(
    model: nn.Module, batch: Batch, include: Include | None, exclude: Sequence[str] | None
) -> Sites:
    """The sites of a network in the order in which they run, or where that cannot be told, are registered."""
    twin = copy.deepcopy(model).eval()
    with torch.no_grad():
        pass_through(twin, first_sample(batch))  # what is wrong with the data is said as such
    try:
        return sites(twin, first_sample(batch).inputs, include=include, exclude=exclude, meta=False)
    except UnknownOperationError:
        return sites(model, include=include, exclude=exclude)


def _site_moments(groups: list[Moments], gradient: Tensor | None) -> SiteMoments:
    """What the groups of one layer saw, as one record."""
    covariance = torch.stack([moments.covariance for moments in groups])
    mean = torch.cat([moments.mean for moments in groups])
    return SiteMoments(groups[0].count, mean, covariance if len(groups) > 1 else covariance[0], gradient)


def dense_layers(model: nn.Module, survey: Sites) -> dict[str, DenseMap]:
    """The layers that a survey chose, by path."""
    return {site.path: the_dense_map(model.get_submodule(site.path)) for site in survey.chosen}


def _groups(layers: dict[str, DenseMap], memory: int) -> list[dict[str, DenseMap]]:
    """Layers whose moments fit into memory together; one that does not by itself is a DataError."""
    groups: list[dict[str, DenseMap]] = [{}]
    used = 0
    for path, layer in layers.items():
        size = 8 * layer.groups * layer.matrix.shape[1] ** 2
        if size > memory:
            raise DataError(f"the moments of {path!r} take {size:,} bytes, more than the {memory:,} allowed")
        if used + size > memory:
            groups.append({})
            used = 0
        groups[-1][path] = layer
        used += size
    return groups


@torch.no_grad()
def _input_moments(
    model: nn.Module,
    layers: dict[str, DenseMap],
    batches: list[Batch],
    positions: int,
    seed: int,
) -> dict[str, list[Moments]]:
    """Of the input of every layer, group by group."""
    generator = torch.Generator().manual_seed(seed)
    found = {
        path: [Moments(layer.matrix.shape[1]) for _ in range(layer.groups)] for path, layer in layers.items()
    }
    mask: Tensor | None = None

    def look(path: str, layer: DenseMap, x: Tensor, _: Tensor) -> None:
        where = sample_positions(layer, x, positions, generator)
        rows = real_rows(layer, x, mask, where)
        for moments, own in zip(found[path], rows.chunk(layer.groups, dim=1), strict=True):
            moments.add(own)

    with watching(layers, look):
        for batch in batches:
            mask = batch.mask
            pass_through(model, batch)
    return found


def _output_gradients(
    model: nn.Module,
    layers: dict[str, DenseMap],
    batches: list[Batch],
    seed: int,
    output_of: OutputOf | None,
) -> dict[str, Tensor]:
    """G of every layer: random signs on the outputs, sent back once."""
    generator = torch.Generator().manual_seed(seed)
    widths = {path: len(layer.matrix) for path, layer in layers.items()}
    found = {path: torch.zeros(width, width, dtype=torch.float64) for path, width in widths.items()}
    count = 0
    outputs: dict[str, list[Tensor]] = {}

    def keep(path: str, _: DenseMap, __: Tensor, y: Tensor) -> Tensor:
        """The first outputs begin a graph: the model's own parameters need no gradient."""
        kept = y if y.requires_grad else y.detach().requires_grad_()
        outputs.setdefault(path, []).append(kept)
        return kept.clone()  # which the network may write over, as activations in place do

    def sent_back(batch: Batch) -> dict[str, tuple[Tensor | None, ...]]:
        """The gradients of one batch; none where the network runs in inference mode, or lets go of it."""
        outputs.clear()
        with watching(layers, keep):
            z = run(model, batch, output_of)
            if not z.requires_grad:
                return {}
            signs = torch.randint(0, 2, z.shape, generator=generator).to(z) * 2 - 1
            noted = {path: list(ys) for path, ys in outputs.items()}  # what is checkpointed now runs again
            kept = [y for ys in noted.values() for y in ys]
            given = iter(torch.autograd.grad((z * signs).sum(), kept, allow_unused=True))
        return {path: tuple(itertools.islice(given, len(ys))) for path, ys in noted.items()}

    for batch in batches:
        if count >= GRADIENT_SAMPLES:
            break
        try:
            with torch.enable_grad(), _GradientsStayOn():
                gradients = sent_back(batch)
        except DataError:  # it does what needs gradients to be off, as `.numpy()`
            with torch.enable_grad():
                gradients = sent_back(batch)
        if not gradients:
            return {}
        for path, own in gradients.items():
            for gradient in own:
                if gradient is not None:
                    rows = output_rows(layers[path], gradient, None).flatten(0, 1).float()
                    found[path] += (rows.T @ rows).double().cpu()
        count += batch.size
    for path, gram in found.items():
        if not bool(gram.isfinite().all()):
            raise DataError(f"the gradients at the output of {path!r} hold NaN or infinity on these data")
    return {path: gram / count for path, gram in found.items()}


class _GradientsStayOn(TorchFunctionMode):
    """What a network says by `torch.no_grad()` or `set_grad_enabled` is not heard.

    A frozen part, too, is worth something. All ways to switch gradients off end in this private function.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch._C._set_grad_enabled:
            return None
        return func(*args, **(kwargs or {}))


def real_rows(layer: DenseMap, x: Tensor, mask: Tensor | None, positions: Tensor | None) -> Tensor:
    """`input_rows` as vectors, without those of tokens that only fill up a batch.

    A mask of another number of tokens says nothing of this layer: a decoder has tokens of its own.
    """
    rows = input_rows(layer, x, positions)
    if mask is None or mask.shape != (len(rows), position_count(layer, x)):
        return rows.flatten(0, 1)
    mask = mask.to(rows.device)
    return rows[mask if positions is None else mask[:, positions]]
