"""What a prepared transform is made of: plain, grouped and Kronecker products, and reorderings, in turn.

A stage acts on the channel axis alone, in either of two layouts: `rows` takes vectors as rows, (n, channels),
and `columns` takes them as columns, (batch, channels, positions). Whatever a stage holds is ready to use: it
can be kept between calls, or be lowered to a plain module.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from understudy._util.capturing import is_captured

from .products import convolved, is_sooner_convolved, rows_times


class Stage(Protocol):
    """One step of a prepared transform, linear in its input."""

    def rows(self, x: Tensor) -> Tensor:
        """Apply to (n, channels)."""

    def columns(self, x: Tensor) -> Tensor:
        """Apply to (batch, channels, positions)."""


State = tuple[Stage, ...]  # W = the last · … · the first


class Product(NamedTuple):
    """I_left ⊗ weight ⊗ I_right: one matrix on the middle axis of channels seen as (left, columns, right)."""

    weight: Tensor  # (rows, columns)
    left: int = 1
    right: int = 1

    @property
    def plain(self) -> bool:
        """Whether it is one matrix over all channels: a 1×1 convolution, or a k×k one on unfolded patches."""
        return self.left == 1 and self.right == 1

    @property
    def run(self) -> int:
        """Neighbouring channels that the matrix reads at once; 0 where they are not neighbours."""
        return self.weight.shape[1] if self.right == 1 else 0

    def rows(self, x: Tensor) -> Tensor:
        """Slices of the vectors as rows of one matrix product."""
        rows, columns = self.weight.shape
        if self.plain:
            return rows_times(x, self.weight)
        if self.right == 1:
            return rows_times(x.reshape(-1, columns), self.weight).reshape(-1, self.left * rows)
        slices = torch.matmul(self.weight, x.reshape(-1, columns, self.right))  # (n · left, rows, right)
        return slices.reshape(-1, self.left * rows * self.right)

    def columns(self, x: Tensor) -> Tensor:
        """The same with `right` and the positions as one axis: nothing is transposed in memory."""
        rows, columns = self.weight.shape
        batch, _, positions = x.shape
        slices = x.reshape(batch * self.left, columns, self.right * positions)
        out = torch.bmm(self.weight.expand(batch * self.left, rows, columns), slices)
        return out.reshape(batch, self.left * rows * self.right, positions)


_MUCH = 8_000_000  # values, more of which are trained no sooner by a convolution, wherever products lag
_SHUFFLED = 16  # vectors, fewer of which change their places sooner by a copy
_EASILY_SHUFFLED = (2, 4, 8)  # groups for which PyTorch's shuffle is quick for however many vectors
_CACHED = 500_000  # values, more of which do not stay at hand: it is slow for other numbers of groups
_WIDE = 128  # rows and columns of a block together: of narrow ones a copy is sooner made than read in strides


def few_rows(*, training: bool) -> int:
    """Up to so many vectors in rows meet a block-diagonal matrix sooner as batched products; measured."""
    return 2048 if training else 1024


def by_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """Rows (…, groups · columns) times the transposed block-diagonal matrix of a (groups, rows, columns)."""
    is_moved = torch.is_grad_enabled() and not _is_wide(weight)
    if is_moved or is_captured() or _is_cast(x):
        slices = x.reshape(-1, *weight.shape[::2]).transpose(0, 1)
        return torch.bmm(slices, weight.mT).transpose(0, 1).reshape(-1, weight.shape[:2].numel())
    if torch.is_grad_enabled():
        made: Tensor = _ByBlocks.apply(x, weight)  # type: ignore[no-untyped-call]
        return made
    return _by_blocks(x, weight)


def _is_wide(weight: Tensor) -> bool:
    return sum(weight.shape[1:]) >= _WIDE


def _by_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """What comes out is written where it belongs, not moved there."""
    groups, rows, columns = weight.shape
    slices = x.reshape(-1, groups, columns).transpose(0, 1)  # (groups, n, columns)
    out = x.new_empty(slices.shape[1], groups, rows)
    torch.bmm(slices, weight.mT, out=out.transpose(0, 1))
    return out.flatten(1)


class _ByBlocks(torch.autograd.Function):
    """`_by_blocks` whose gradients are written where they belong, too."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return _by_blocks(x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        groups, rows, columns = weight.shape
        of_x = by_blocks(grad, weight.mT).reshape(x.shape) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return of_x, None
        slices = x.reshape(-1, groups, columns).transpose(0, 1)
        grads = grad.reshape(-1, groups, rows).transpose(0, 1)
        if rows <= columns:  # a product with few rows and many columns is quicker than its transpose
            return of_x, torch.bmm(grads.mT, slices)
        return of_x, torch.bmm(slices.mT, grads).mT

    @staticmethod
    def jvp(ctx: Any, of_x: Tensor | None, of_weight: Tensor | None) -> Tensor:
        x, weight = ctx.saved_tensors
        made = by_blocks(x, torch.zeros_like(weight) if of_weight is None else of_weight)
        return made if of_x is None else made + by_blocks(of_x, weight)


class Blocks(NamedTuple):
    """A block-diagonal matrix: consecutive, equal slices of the channels, a matrix for each."""

    weight: Tensor  # (groups, rows, columns)

    @property
    def run(self) -> int:
        """Neighbouring channels that each matrix reads at once."""
        return self.weight.shape[2]

    def rows(self, x: Tensor) -> Tensor:
        """Few vectors by batched products; many by a grouped convolution.

        Wide blocks are trained quicker still by batched products.
        """
        groups, rows, columns = self.weight.shape
        if not torch.compiler.is_compiling() and self._is_sooner_batched(x):
            return by_blocks(x, self.weight)
        return convolved(x, self.weight.reshape(groups * rows, columns), groups=groups)

    def _is_sooner_batched(self, x: Tensor) -> bool:
        training = torch.is_grad_enabled()
        if is_sooner_convolved(x, self.weight) and not (training and x.numel() > _MUCH):
            return False
        return len(x) <= few_rows(training=training) or (training and _is_wide(self.weight))

    def columns(self, x: Tensor) -> Tensor:
        """Batched matrix products over (batch, group): quicker than a grouped convolution in this layout."""
        groups, rows, columns = self.weight.shape
        batch, _, positions = x.shape
        out = torch.matmul(self.weight, x.reshape(batch, groups, columns, positions))
        return out.reshape(batch, groups * rows, positions)


class Scale(NamedTuple):
    """A diagonal matrix: every channel times a number of its own."""

    weight: Tensor  # (channels,)

    def rows(self, x: Tensor) -> Tensor:
        """The channels are the last axis."""
        return (x * self.weight).to(result_type(x))

    def columns(self, x: Tensor) -> Tensor:
        """The channels are the axis before the last."""
        return (x * self.weight[:, None]).to(result_type(x))


class Follow(NamedTuple):
    """h → [h; weight · h], its channels put in their places."""

    weight: Tensor  # (rows, columns)
    places: Tensor  # (columns + rows,)

    def rows(self, x: Tensor) -> Tensor:
        """The channels are the last axis."""
        return torch.cat([x, rows_times(x, self.weight)], dim=-1).index_select(-1, self.places)

    def columns(self, x: Tensor) -> Tensor:
        """The channels are the axis before the last."""
        return torch.cat([x, self.weight @ x], dim=-2).index_select(-2, self.places)


class Permute(NamedTuple):
    """Channels seen as an array of `sizes`, its axes put in another order: it moves, and computes nothing."""

    sizes: tuple[int, ...]
    axes: tuple[int, ...]  # the new order, as for torch.permute

    def rows(self, x: Tensor) -> Tensor:
        """The channels are the last axis; two axes change places in a call of their own, which is quicker."""
        is_real = not (torch.is_grad_enabled() or is_captured())
        if is_real and self.axes == (1, 0) and 1 not in self.sizes and x.is_cpu and len(x) >= _SHUFFLED:
            if self.sizes[0] not in _EASILY_SHUFFLED and x.numel() > _CACHED:
                return x.gather(1, self._places(x.device).expand(len(x), -1))
            images = x.reshape(1, 1, -1, math.prod(self.sizes)).permute(0, 3, 1, 2)
            return torch.channel_shuffle(images, self.sizes[0]).permute(0, 2, 3, 1).reshape(len(x), -1)
        moved = x.reshape(-1, *self.sizes).permute(0, *(1 + axis for axis in self.axes))
        return moved.reshape(-1, math.prod(self.sizes))

    def _places(self, device: torch.device) -> Tensor:
        """Where each channel comes from."""
        channels = torch.arange(math.prod(self.sizes), device=device)
        return channels.reshape(self.sizes).permute(self.axes).flatten()

    def columns(self, x: Tensor) -> Tensor:
        """The channels are the axis before the last."""
        batch, channels, positions = x.shape
        moved = x.reshape(batch, *self.sizes, positions)
        moved = moved.permute(0, *(1 + axis for axis in self.axes), 1 + len(self.sizes))
        return moved.reshape(batch, channels, positions)


def columns_by_rows(stage: Stage, x: Tensor) -> Tensor:
    """`columns` of a stage that runs along the last axis: the channels are put there."""
    batch, channels, positions = x.shape
    return stage.rows(x.mT.reshape(-1, channels)).reshape(batch, positions, -1).mT


def result_type(x: Tensor) -> torch.dtype:
    """What a stage that computes in a precision of its own returns: the input's type, or that of autocast."""
    return torch.get_autocast_dtype(x.device.type) if _is_cast(x) else x.dtype


def _is_cast(x: Tensor) -> bool:
    """Whether autocast takes products of this tensor to another type."""
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def is_plain(stage: Stage) -> bool:
    """Whether a stage is one matrix over all channels."""
    return isinstance(stage, Product) and stage.plain
