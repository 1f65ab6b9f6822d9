"""Which modules are dense maps, y = W x + bias, and where their weight and bias are."""

from __future__ import annotations

import copy
import dataclasses
from typing import Literal

import torch
from torch import Tensor, nn

from understudy._util.meta import meta_copy

from .alike import linear_layout
from .geometry import DenseConv, Geometry

Kind = Literal["linear", "conv1d", "conv2d", "conv3d", "other"]
_KINDS: dict[type[nn.Module], Kind] = {
    nn.Linear: "linear",
    nn.Conv1d: "conv1d",
    nn.Conv2d: "conv2d",
    nn.Conv3d: "conv3d",
}


CONVOLUTIONS: tuple[Kind, ...] = ("conv1d", "conv2d", "conv3d")  # by their dimensions


@dataclasses.dataclass(frozen=True)
class DenseMap:
    """A module as y = W x + bias, at every vector or under every kernel, however it stores W."""

    module: nn.Module
    kind: Kind
    parent: type[nn.Module] | None  # the class of torch that it computes as; None: a look-alike
    transposed: bool = False  # whether W is stored in × out

    @property
    def weight(self) -> Tensor:
        """W, (out, in / groups, …kernel): the parameter itself or a view, so that what is written is kept."""
        weight = self.module.get_parameter("weight")
        return weight.T if self.transposed else weight

    @property
    def bias(self) -> Tensor | None:
        """The bias, (out,)."""
        return self.module._parameters.get("bias")

    @property
    def matrix(self) -> Tensor:
        """W as a matrix out × in·taps of a group."""
        return self.weight.flatten(1)

    @property
    def geometry(self) -> Geometry | None:
        """Where a convolution looks; None for a linear map."""
        return Geometry.of(self.module) if isinstance(self.module, DenseConv) else None

    @property
    def groups(self) -> int:
        """Equal, consecutive slices of the channels, each with rows of W of its own."""
        return self.module.groups if isinstance(self.module, DenseConv) else 1


def dense_map(module: nn.Module) -> DenseMap | None:
    """A module as a dense map; None where it is none.

    >>> found = dense_map(nn.Linear(3, 5))
    >>> found.kind, tuple(found.weight.shape)
    ('linear', (5, 3))
    >>> dense_map(nn.ReLU()) is None
    True
    """
    for parent, kind in _KINDS.items():
        if isinstance(module, parent):
            return DenseMap(module, kind, parent)
    layout = linear_layout(module)
    return None if layout is None else DenseMap(module, "linear", None, layout == "in_out")


def the_dense_map(module: nn.Module) -> DenseMap:
    """A module that is known to be a dense map, as one."""
    found = dense_map(module)
    assert found is not None
    return found


@dataclasses.dataclass(frozen=True)
class Shell:
    """A look-alike without its weight: what its place in a network expects to find there again."""

    module: nn.Module  # on the meta device
    transposed: bool

    @classmethod
    def of(cls, dense: DenseMap) -> Shell | None:
        """That of a look-alike; None for one of torch's own layers."""
        return cls(meta_copy(dense.module), dense.transposed) if dense.parent is None else None

    def stored(self, matrix: Tensor) -> Tensor:
        """A matrix out × in as the look-alike stores it."""
        return matrix.T if self.transposed else matrix

    def filled(self, matrix: Tensor, bias: Tensor | None) -> nn.Module:
        """The look-alike with this matrix, out × in, and this bias."""
        made = copy.deepcopy(self.module)
        made.weight = nn.Parameter(self.stored(matrix.detach()).clone(memory_format=torch.contiguous_format))
        if bias is not None:
            made.bias = nn.Parameter(bias.detach().clone(), bias.requires_grad)
        return made
