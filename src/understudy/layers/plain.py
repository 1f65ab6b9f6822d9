"""The few modules that lowered layers need beside those of PyTorch: they reshape, reorder and multiply."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy.transforms import Transform
from understudy.transforms.at_once import precise_matrix
from understudy.transforms.orders import FORMED
from understudy.transforms.stages import Permute, Product, State, by_blocks

from .dense import Shell
from .geometry import Geometry
from .kept import Kept


class Slices(nn.Module):
    """Images of slices of the channels: (batch, left·width·right, h, …) → (batch·left, width, right·h, …)."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self.left, self.right = left, right

    def forward(self, x: Tensor) -> Tensor:
        """Nothing is moved in memory where channels come first."""
        width = x.shape[1] // (self.left * self.right)
        return x.reshape(-1, width, self.right * x.shape[2], *x.shape[3:])

    def extra_repr(self) -> str:
        """Into how many slices."""
        return f"left={self.left}, right={self.right}"


class Joined(Slices):
    """The inverse: (batch·left, width, right·h, …) → (batch, left·width·right, h, …)."""

    def forward(self, x: Tensor) -> Tensor:
        """Nothing is moved in memory where channels come first."""
        channels = self.left * x.shape[1] * self.right
        return x.reshape(-1, channels, x.shape[2] // self.right, *x.shape[3:])


class SharedConv(nn.Module):
    """A convolution of each of `groups` slices of the channels, all with one kernel.

    Its graph repeats the kernel and runs a grouped convolution, around which runtimes fuse and keep their own
    layout of images; a file holds the kernel once.
    """

    def __init__(self, geometry: Geometry, weight: nn.Parameter, groups: int, bias: Tensor | None) -> None:
        super().__init__()
        self.geometry, self.groups = geometry, groups
        self.weight = weight  # (rows, columns · taps)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), bias.requires_grad)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, groups · columns, …) → (batch, groups · rows, …)."""
        return self.geometry.convolve_slices(x, self.weight, self.bias, self.groups)

    def extra_repr(self) -> str:
        """The kernel, and how often it is used."""
        return f"{tuple(self.weight.shape)}, kernel={self.geometry.kernel}, groups={self.groups}"


class Reorder(nn.Module):
    """Channels in another order: the axis `dim` seen as an array of `sizes`, its axes permuted."""

    def __init__(self, stage: Permute, dim: int) -> None:
        super().__init__()
        self.sizes, self.axes, self.dim = stage.sizes, stage.axes, dim

    def forward(self, x: Tensor) -> Tensor:
        """It moves, and computes nothing."""
        dim = self.dim % x.dim()
        places = [dim + axis for axis in self.axes]
        seen = x.reshape(*x.shape[:dim], *self.sizes, *x.shape[dim + 1 :])
        after = range(dim + len(self.sizes), seen.dim())
        return seen.permute(*range(dim), *places, *after).flatten(dim, dim + len(self.sizes) - 1)

    def extra_repr(self) -> str:
        """The array and the new order of its axes."""
        return f"sizes={self.sizes}, axes={self.axes}"


class Middle(nn.Module):
    """A matrix on the axis before the last: (…, columns, right) → (…, rows, right)."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        """weight · x."""
        return torch.matmul(self.weight, x)


class BlockLinear(nn.Module):
    """A matrix for each slice of the last axis: y = x · block-diagonalᵀ."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight  # (groups, rows, columns)

    def forward(self, x: Tensor) -> Tensor:
        """One batched product."""
        return by_blocks(x, self.weight).reshape(*x.shape[:-1], self.weight.shape[:2].numel())

    def extra_repr(self) -> str:
        """The blocks."""
        return f"blocks={tuple(self.weight.shape)}"


class Following(nn.Module):
    """Channels, those that follow from them, and all put in their places."""

    places: Tensor

    def __init__(self, inner: nn.Module, places: Tensor, dim: int) -> None:
        super().__init__()
        self.inner, self.dim = inner, dim
        self.register_buffer("places", places)

    def forward(self, x: Tensor) -> Tensor:
        """[x; inner(x)] in another order."""
        return torch.cat([x, self.inner(x)], self.dim).index_select(self.dim, self.places)


class Shifted(nn.Module):
    """A bias on the last axis, or on the channels of images."""

    def __init__(self, bias: nn.Parameter, dims: int) -> None:
        super().__init__()
        self.bias, self.dims = bias, dims

    def forward(self, x: Tensor) -> Tensor:
        """x + bias."""
        return x + self.bias.reshape(-1, *(1 for _ in range(self.dims)))


class Scaled(nn.Module):
    """A number for each entry of the last axis, or for each channel of images."""

    def __init__(self, weight: nn.Parameter, dims: int) -> None:
        super().__init__()
        self.weight, self.dims = weight, dims

    def forward(self, x: Tensor) -> Tensor:
        """x · weight."""
        return x * self.weight.reshape(-1, *(1 for _ in range(self.dims)))


class Split(nn.Module):
    """Equal, consecutive slices of the channels, a module for each."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """What they give, one below the other."""
        slices = zip(self.parts, x.chunk(len(self.parts), dim=1), strict=True)
        return torch.cat([part(piece) for part, piece in slices], dim=1)


class Computed(nn.Module):
    """One product, or one convolution, with a matrix that plain operations compute from the parameters.

    In inference the matrix is kept between calls, as a stand-in keeps it.
    """

    def __init__(
        self, transforms: Sequence[Transform], geometry: Geometry | None, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.transforms = nn.ModuleList(copy.deepcopy(list(transforms)))  # one of every group
        self.geometry = geometry
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), bias.requires_grad)
        self.given: Tensor | None = None  # the weight of this call, computed beside those of other layers
        self._kept = Kept()

    @property
    def members(self) -> list[Transform]:
        """The transforms, one of every group."""
        return [each for each in self.transforms if isinstance(each, Transform)]

    @property
    def weight(self) -> Tensor:
        """The matrix (out, in), or the kernel (out, in / groups, …)."""
        if self.given is not None:
            return self.given
        matrices = [precise_matrix(each) for each in self.members]
        matrix = matrices[0] if len(matrices) == 1 else torch.cat(matrices)
        return matrix if self.geometry is None else matrix.reshape(len(matrix), -1, *self.geometry.kernel)

    def _state(self) -> State:
        return (Product(self.weight),)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the matrix, or look whether it still is that of the parameters; then one operation."""
        if self.training or torch.is_grad_enabled():
            weight = self.weight
        else:
            (product,) = self._kept.made(self, FORMED, self._state)
            assert isinstance(product, Product)
            weight = product.weight
        if self.geometry is None:
            return F.linear(x, weight, self.bias)
        return self.geometry.convolve(x, weight, self.bias, len(self.transforms))


class Lowered(nn.Sequential):
    """Plain modules in turn that together are one stand-in."""

    in_features: int | None = None  # of a linear layer
    shell: Shell | None = None  # of one that stands in for a look-alike of nn.Linear

    @property
    def weight(self) -> Tensor:
        """The matrix of a linear layer, formed for modules that read it instead of calling the layer."""
        if self.in_features is None:
            raise AttributeError("a lowered convolution has no weight of its own")
        first = next(self.parameters())
        x = torch.eye(self.in_features, device=first.device, dtype=first.dtype)
        for part in self:
            if isinstance(part, nn.Linear | Computed):
                x = F.linear(x, part.weight)
            elif not isinstance(part, Shifted):
                x = part(x)
        return x.T if self.shell is None else self.shell.stored(x.T)

    @property
    def bias(self) -> Tensor | None:
        """The bias of a linear layer."""
        last = self[-1]
        return last.bias if isinstance(last, nn.Linear | Shifted | Computed) else None
