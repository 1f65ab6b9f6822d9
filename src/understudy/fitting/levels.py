"""The last layer of a student, scaled and moved: its outputs vary and lie as the original's do.

Errors of many layers make all outputs larger or smaller, and move each of them. Where a dense layer gives the
network's output, ẑ → a ẑ + c costs nothing: a goes into its weight, c into its bias. Both are found on inputs
that no layer was fitted to, and judged for each sample by what the others say.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from understudy.layers.dense import DenseMap, dense_map, the_dense_map
from understudy.planning.obstacles import obstacle, weight_owners

from .inputs import Batch, OutputOf, first_sample, of_real_tokens, output_that_matters
from .rows import output_rows
from .running import run, watching

_FEWEST = 8  # samples
_ROUNDING = 1e-6  # of weights in single precision


@dataclasses.dataclass(frozen=True)
class Level:
    """What a layer's output is multiplied by, and what is then added to it."""

    path: str
    factor: float
    constant: Tensor  # (out,), float64

    @torch.no_grad()
    def applied(self, student: nn.Module) -> nn.Module:
        """A copy whose layer does it."""
        made = copy.deepcopy(student)
        layer = the_dense_map(made.get_submodule(self.path))
        assert layer.bias is not None
        layer.weight.mul_(self.factor)
        layer.bias.copy_(self.factor * layer.bias.double() + self.constant.to(layer.bias.device))
        return made


def last_layer(model: nn.Module, batch: Batch, output_of: OutputOf | None) -> str | None:
    """The dense layer with a bias whose output is the network's, and which nothing else depends on."""
    layers = {path: layer for path, module in model.named_modules() if (layer := dense_map(module))}
    given: dict[int, tuple[str, int]] = {}  # which layer gave a tensor, and what version of it
    kept: list[Tensor] = []  # so that no other tensor gets the identity of one that is gone

    def note(path: str, _: DenseMap, __: Tensor, y: Any) -> None:
        if isinstance(y, Tensor):
            given[id(y)] = path, y._version
            kept.append(y)

    def taken(returned: Any) -> Tensor:
        kept.append(output_that_matters(returned, output_of))
        return kept[-1]

    with torch.no_grad(), watching(layers, note):
        run(model, first_sample(batch), taken)
    path, version = given.get(id(kept[-1]), (None, 0))
    is_written_over = version != kept[-1]._version
    if path is None or is_written_over or [other for other, _ in given.values()].count(path) > 1:
        return None
    return path if _can_be_written_to(path, layers[path], model) else None


def _can_be_written_to(path: str, layer: DenseMap, model: nn.Module) -> bool:
    """Whether a change of a layer's weight and bias is that change of its output, and of nothing else."""
    if obstacle(path, layer.module, weight_owners(model)) is not None:
        return False
    has_hooks = bool(layer.module._forward_hooks or layer.module._forward_pre_hooks)
    return not has_hooks and layer.bias is not None and layer.bias.shape == (len(layer.weight),)


def find_level(
    path: str, layer: DenseMap, batches: list[Batch], wanted: list[Tensor], made: list[Tensor]
) -> tuple[Level, float] | None:
    """The level that brings outputs nearest to those wanted, and ‖z − a ẑ − c‖² of all samples.

    The error is what is lost where a and c of each sample are those of all other samples. None where they are
    too few to tell.
    """
    sums = _Sums.of(layer, batches, wanted, made)
    if len(sums.count) < _FEWEST:
        return None
    total = sums.total()
    factor, constant = total.best()
    lost = max(0.0, float(sums.lost(*total.less(sums).best()).sum()))  # but for rounding
    return Level(path, float(factor), constant), lost


@torch.no_grad()
def take_levels_back_(student: nn.Module, original: nn.Module) -> None:
    """Give a dense layer whose weight is the original's but for a factor the original's weight and bias.

    Training begins there: it mends what a level only makes up for, and a last layer that was made small for
    that takes longer to grow back than a short training lasts.
    """
    dense = {path: layer for path, module in original.named_modules() if (layer := dense_map(module))}
    for path, module in student.named_modules():
        ours, theirs = dense_map(module), dense.get(path)
        if ours is None or theirs is None or ours.bias is None or theirs.bias is None:
            continue
        if _can_be_written_to(path, ours, student) and _is_multiple(
            ours.weight, theirs.weight.to(ours.weight)
        ):
            ours.weight.copy_(theirs.weight)
            ours.bias.copy_(theirs.bias)


def _is_multiple(weight: Tensor, other: Tensor) -> bool:
    """Whether one is the other times a number above 0 that is not 1, but for rounding."""
    if weight.shape != other.shape or torch.equal(weight, other):
        return False
    ours, theirs = weight.double(), other.double()
    factor = (ours * theirs).sum() / theirs.square().sum()
    return bool(factor > 0 and (ours - factor * theirs).norm() <= _ROUNDING * ours.norm())


@dataclasses.dataclass(frozen=True)
class _Sums:
    """Of outputs z of the original and y of a student, by sample: all that ‖z − a y − c‖² depends on."""

    count: Tensor  # (samples,)
    z: Tensor  # (samples, out)
    y: Tensor
    zz: Tensor  # (samples,)
    zy: Tensor
    yy: Tensor

    @classmethod
    def of(cls, layer: DenseMap, batches: list[Batch], wanted: list[Tensor], made: list[Tensor]) -> _Sums:
        """Of all batches; outputs of tokens that only fill up a batch are 0, and are not counted."""
        parts = []
        for batch, theirs, ours in zip(batches, wanted, made, strict=True):
            ones = of_real_tokens(torch.ones_like(theirs), batch.inputs)
            z, y, real = (output_rows(layer, output, None).cpu() for output in (theirs, ours, ones))
            products = [(one * other).sum((1, 2)) for one, other in ((z, z), (z, y), (y, y))]
            parts.append((real[..., 0].sum(1), z.sum(1), y.sum(1), *products))
        return cls(*map(torch.cat, zip(*parts, strict=True)))

    def total(self) -> _Sums:
        """Of all samples together."""
        return _Sums(*(values.sum(0) for values in self._values))

    def less(self, own: _Sums) -> _Sums:
        """Without what each sample has itself."""
        return _Sums(*(whole - part for whole, part in zip(self._values, own._values, strict=True)))

    def best(self) -> tuple[Tensor, Tensor]:
        """The a and c that lose least; a is 1 where outputs do not vary together."""
        count = self.count.clamp(min=1)
        shared = self.zy - (self.z * self.y).sum(-1) / count
        spread = self.yy - self.y.square().sum(-1) / count
        factor = torch.where((shared > 0) & (spread > 0), shared / spread, torch.ones_like(shared))
        return factor, (self.z - factor[..., None] * self.y) / count[..., None]

    def lost(self, factor: Tensor, constant: Tensor) -> Tensor:
        """‖z − a y − c‖² of each sample."""
        pure = self.zz - 2 * factor * self.zy + factor**2 * self.yy
        moved = (constant * (self.count[:, None] * constant - 2 * (self.z - factor[:, None] * self.y))).sum(1)
        return pure + moved

    @property
    def _values(self) -> tuple[Tensor, ...]:
        return self.count, self.z, self.y, self.zz, self.zy, self.yy
