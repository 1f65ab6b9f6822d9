"""Where the mean of a layer's error can be taken back: its own bias, or the batch norm that follows it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from understudy._util.modules import first_input
from understudy.layers import Layer

from .inputs import Batch
from .running import pass_through

_ASKING = ("__get__", "dim", "size", "numel", "is_floating_point", "is_complex")
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


@dataclasses.dataclass(frozen=True)
class Shift:
    """The place of a constant that is added to a layer's output; nowhere where it has neither."""

    bias: bool = False
    norm: str = ""  # the path of the batch norm that alone reads the output

    @property
    def exists(self) -> bool:
        """Whether there is such a place."""
        return self.bias or bool(self.norm)

    @torch.no_grad()
    def set_(self, student: nn.Module, original: nn.Module, path: str, constant: Tensor) -> None:
        """Make the student's layer add `constant`; the original says what its norm took away before."""
        if self.bias:
            layer = student.get_submodule(path)
            bias = layer.bias if isinstance(layer, Layer) else layer.get_parameter("bias")
            assert bias is not None
            bias.copy_(constant)
        elif self.norm:
            mean = student.get_submodule(self.norm).get_buffer("running_mean")
            before = original.get_submodule(self.norm).get_buffer("running_mean")
            mean.copy_(before.double() - constant.to(before.device))


class _Reads(TorchFunctionMode):
    """Counts the functions that are called with a layer's very output."""

    def __init__(self, given: Mapping[int, str]) -> None:
        super().__init__()
        self.given = given
        self.count: collections.Counter[str] = collections.Counter()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the function; one that asks for a shape or the like reads no value."""
        if func.__name__ not in _ASKING:
            held = {id(one) for one in tree_leaves((args, kwargs or {})) if isinstance(one, Tensor)}
            self.count.update(self.given[one] for one in held if one in self.given)
        return func(*args, **(kwargs or {}))


def find_shifts(model: nn.Module, paths: list[str], batch: Batch) -> dict[str, Shift]:
    """The place of each layer's constant, by one run: a batch norm follows if it reads the very output."""
    found = {
        path: Shift(bias=model.get_submodule(path)._parameters.get("bias") is not None) for path in paths
    }
    given: dict[int, str] = {}
    kept: list[Tensor] = []  # so that no other tensor gets the identity of one that is gone
    read: dict[str, list[str]] = {}

    def leave(path: str) -> object:
        def hook(_: nn.Module, __: object, output: object) -> None:
            if isinstance(output, Tensor):
                given[id(output)] = path
                kept.append(output)

        return hook

    def enter(path: str, module: nn.Module) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            source = given.get(id(first_input(args, kwargs)))
            if source is not None:
                read.setdefault(source, []).append(path if isinstance(module, NORMS) else "")

        return hook

    handles = [model.get_submodule(path).register_forward_hook(leave(path)) for path in paths]  # type: ignore[arg-type]
    for path, module in model.named_modules():
        if isinstance(module, NORMS) or not any(True for _ in module.children()):
            handles.append(module.register_forward_pre_hook(enter(path, module), with_kwargs=True))
    try:
        with torch.no_grad(), _Reads(given) as reads:
            pass_through(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    sources = collections.Counter(norm for readers in read.values() for norm in set(readers))
    for path, readers in read.items():
        if not found[path].bias and sources[readers[0]] > 1:
            continue  # a norm that several layers share is no place for a constant of one
        if not found[path].bias and len(readers) == 1 and readers[0] and reads.count[path] == 1:
            norm = model.get_submodule(readers[0])
            if isinstance(norm, NORMS) and norm.running_mean is not None:
                found[path] = Shift(norm=readers[0])
    return found
