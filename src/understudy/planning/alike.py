"""Whether a subclass of a dense layer computes what its parent does, but for casts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from understudy.counting.trace import meta_copy

aten = torch.ops.aten
# What nn.Linear and the convolutions are made of, and casts.
_ONE_PRODUCT = frozenset(
    (aten.addmm, aten.mm, aten.bmm, aten.baddbmm, aten.mv, aten.addmv, aten.linear, aten.convolution)
)
_HARMLESS = frozenset((aten._to_copy, aten.detach, aten.clone))


class _Watch(TorchDispatchMode):
    """Counts products, and notes whether anything else than casting, viewing and adding a bias happens."""

    def __init__(self, bias: Tensor | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bias = bias
        self.products = 0
        self.others = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in _ONE_PRODUCT:
            self.products += 1
        elif func.overloadpacket is aten.add:
            self.others |= self.products == 0 or not any(operand is self.bias for operand in args[:2])
        elif func.overloadpacket not in _HARMLESS and not func.is_view:
            self.others = True
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def computes_as(module: nn.Module, parent: type[nn.Module]) -> bool:
    """Whether a subclass's forward is one product of its weight with its input, in both modes.

    It is run on a copy without weights, on the smallest input that its parent would take, and its operations
    and the shape of its output are looked at; whatever fails or does anything else computes in its own way.
    """
    twin = meta_copy(module)
    weight = twin.get_parameter("weight")
    if issubclass(parent, nn.Linear):
        x = torch.empty(2, weight.shape[1], device="meta", dtype=weight.dtype)
    else:
        sides = [32 + 2 * size for size in weight.shape[2:]]
        x = torch.empty(2, weight.shape[1], *sides, device="meta", dtype=weight.dtype)
    for training in (True, False):
        twin.train(training)
        watch = _Watch(twin._parameters.get("bias"))
        try:
            with watch:
                got = twin(x)
            expected = parent.forward(twin, x)
        except Exception:  # it needs another input than its parent's
            return False
        if watch.products != 1 or watch.others or not isinstance(got, Tensor) or got.shape != expected.shape:
            return False
    return True
