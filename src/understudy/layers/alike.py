"""Whether a module computes what a dense layer does: one product of its weight with its input, and a bias."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from understudy._util.meta import meta_copy

from .geometry import DenseConv

aten = torch.ops.aten
Layout = Literal["out_in", "in_out"]
# What nn.Linear and the convolutions are made of, and casts.
_ONE_PRODUCT = frozenset(
    (aten.addmm, aten.mm, aten.bmm, aten.baddbmm, aten.mv, aten.addmv, aten.linear, aten.convolution)
)
_HARMLESS = frozenset((aten._to_copy, aten._unsafe_view, aten.detach, aten.clone))


class _Watch(TorchDispatchMode):
    """Counts products, and notes whether anything else than casting, viewing and adding a bias happens."""

    def __init__(self, bias: Tensor | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bias = bias
        self.products = 0
        self.operands: tuple[Any, ...] = ()  # of the last product, and of a convolution its geometry
        self.adds_bias = False
        self.others = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in _ONE_PRODUCT:
            self.products += 1
            is_convolution = func.overloadpacket is aten.convolution
            self.operands = (*args[:2], *args[3:]) if is_convolution else args[-2:]
            self.adds_bias = any(operand is self.bias for operand in args[:-2])
        elif func.overloadpacket is aten.add:
            adds_bias = any(operand is self.bias for operand in args[:2])
            self.others |= self.products == 0 or not adds_bias
            self.adds_bias |= adds_bias
        elif func.overloadpacket not in _HARMLESS and not func.is_view:
            self.others = True
        self.others |= bool(kwargs) and func.overloadpacket in (aten.add, aten.addmm)  # alpha, beta
        return func(*args, **(kwargs or {}))

    @property
    def is_one_product(self) -> bool:
        """Whether nothing but one product, and perhaps a bias, was seen."""
        return self.products == 1 and not self.others


@torch.no_grad()
def computes_as(module: nn.Module, parent: type[nn.Module]) -> bool:
    """Whether a subclass's forward is the product of its input with its weight that its parent's is.

    It is run in both modes on a copy without weights, on inputs that its parent would take, and its
    operations and its output are looked at; whatever fails or does anything else computes in its own way.
    """
    twin = meta_copy(module)
    weight = twin.get_parameter("weight")
    if issubclass(parent, nn.Linear):
        shapes = [[2, weight.shape[1]]]
    else:
        channels = weight.shape[1] * (twin.groups if isinstance(twin, DenseConv) else 1)
        sides = [[32 + 2 * size + more for size in weight.shape[2:]] for more in (0, 1)]  # some pad the odd
        shapes = [[2, channels, *found] for found in sides]
    inputs = [torch.empty(shape, device="meta", dtype=weight.dtype) for shape in shapes]
    return all(_computes_as(twin.train(training), parent, x) for training in (True, False) for x in inputs)


def _computes_as(twin: nn.Module, parent: type[nn.Module], x: Tensor) -> bool:
    bias = twin._parameters.get("bias")
    watch, its_parents = _Watch(bias), _Watch(bias)
    try:
        with watch:  # hooks are left out: they look at real calls
            got = twin.forward(x)
        with its_parents:
            expected = parent.forward(twin, x)
    except Exception:  # it needs another input than its parent's
        return False
    return (
        watch.is_one_product
        and watch.adds_bias == (bias is not None)
        and isinstance(got, Tensor)
        and (got.shape, got.dtype) == (expected.shape, expected.dtype)
        and len(watch.operands) == len(its_parents.operands)
        and all(map(_is_same, watch.operands, its_parents.operands))
    )


@torch.no_grad()
def linear_layout(module: nn.Module) -> Layout | None:
    """How a module of any class that computes y = W x + bias stores W as its `weight`; None: it does not.

    transformers' Conv1D is such a module. Only what holds one matrix, perhaps a bias, and nothing else is
    looked at: a copy without weights is run in both modes, and its one product must be of the input, as it
    came, with the weight, as it is stored or transposed.
    """
    parameters = dict(module.named_parameters())
    weight = parameters.get("weight")
    if weight is None or set(parameters) - {"weight", "bias"} or any(True for _ in module.children()):
        return None
    if any(is_lazy(parameter) for parameter in parameters.values()) or any(True for _ in module.buffers()):
        return None
    if weight.dim() != 2 or not weight.is_floating_point():
        return None
    twin = meta_copy(module)
    for layout in get_args(Layout):
        if all(_computes_linear(twin.train(training), layout) for training in (True, False)):
            found: Layout = layout
            return found
    return None


def _computes_linear(twin: nn.Module, layout: Layout) -> bool:
    weight, bias = twin.get_parameter("weight"), twin._parameters.get("bias")
    factor = weight if layout == "in_out" else weight.T
    x = torch.empty(2, 3, len(factor), device="meta", dtype=weight.dtype)
    watch = _Watch(bias)
    try:
        with watch:  # hooks are left out: they look at real calls
            got = twin.forward(x)
    except Exception:  # it takes another input
        return False
    if not watch.is_one_product or watch.adds_bias != (bias is not None):
        return False
    left, right = watch.operands
    return (
        isinstance(got, Tensor)
        and got.shape == (2, 3, factor.shape[1])
        and got.is_contiguous()
        and _is_seen_as(left, x.reshape(6, -1))
        and _is_seen_as(right, factor)
    )


def _is_same(operand: object, other: object) -> bool:
    """Whether two operands are one: tensors the same memory, numbers the same numbers."""
    if isinstance(operand, Tensor) and isinstance(other, Tensor):
        return _is_seen_as(operand, other)
    return operand == other


def _is_seen_as(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same memory, seen in the same way."""
    same = tensor.untyped_storage()._cdata == other.untyped_storage()._cdata
    return same and tensor.shape == other.shape and tensor.stride() == other.stride()
