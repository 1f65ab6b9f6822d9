"""Matrices formed of numbers that stand beside the transforms: of many at once, or in another precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from .base import Transform


class _Matrix(nn.Module):
    """The matrix of a transform as the output of a module."""

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self.transform = transform

    def forward(self) -> Tensor:
        """W."""
        return self.transform.matrix()


def _matrix_of(transform: Transform, numbers: Mapping[str, Tensor]) -> Tensor:
    """W with these numbers in the place of the parameters."""
    given = {f"transform.{name}": number for name, number in numbers.items()}
    made: Tensor = functional_call(_Matrix(transform), given, ())
    return made


def precise_matrix(transform: Transform) -> Tensor:
    """W, computed in single precision at least: runtimes form no matrix of halves ahead."""
    numbers = dict(transform.named_parameters())
    dtype = next(iter(numbers.values())).dtype
    if torch.finfo(dtype).bits >= torch.finfo(torch.float32).bits:
        return transform.matrix()
    return _matrix_of(transform, {name: number.float() for name, number in numbers.items()}).to(dtype)


def matrices_at_once(alike: Sequence[Transform]) -> Tensor:
    """The matrices (n, out, in) of transforms of one kind, shape and knob, as the first forms its own.

    >>> import understudy as us
    >>> acdc = us.get_transform("acdc")
    >>> matrices_at_once([acdc(8, 8, 2, seed=seed) for seed in range(3)]).shape
    torch.Size([3, 8, 8])
    """
    first = alike[0]
    numbers = {
        name: torch.cat([each.get_parameter(name) for each in alike]).unflatten(0, (len(alike), -1))
        for name, _ in first.named_parameters()
    }
    dtype = next(iter(numbers.values())).dtype
    precise = torch.promote_types(dtype, torch.float32)
    numbers = {name: number.to(precise) for name, number in numbers.items()}
    made: Tensor = torch.vmap(lambda own: _matrix_of(first, own))(numbers)
    return made.to(dtype)
