"""Run a copy of a network once, without weights if it can, and record what each module did and cost."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from understudy._util.modules import first_input
from understudy.layers.kept import Ahead
from understudy.layers.layer import Layer, stand_ins
from understudy.transforms import Transform

from . import operations
from .copies import copy_to_run
from .reads import noting_reads
from .ways import Way, as_it_is, ways_to_run

# One input, its shape, or several inputs by place or by name.
Example = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


@dataclasses.dataclass
class Trace:
    """What one forward pass did, by the path of the module that did it.

    Work inside an understudy layer belongs to the layer; other work belongs to the innermost module.
    """

    mult_adds: collections.Counter[str]
    outputs: dict[str, list[tuple[int, ...]]]  # the shape of each call's output, where it is one tensor
    inputs: dict[str, list[tuple[int, ...]]]  # the shape of each call's first input, where that is a tensor
    weight_reads: collections.Counter[str]  # reads of a module's weight outside any call of that module


def trace(model: nn.Module, example: Example, *, meta: bool = True, kept: bool = False) -> Trace:
    """Trace one forward pass in evaluation mode; the model itself is neither run nor changed.

    A copy without weights runs it; where that fails, as in a network that makes tensors on the CPU, fake
    tensors; and where that fails too, as in one whose control flow looks at values, a real copy on the CPU.
    With `meta=False` it is a real copy from the first, where the model is. Where what stand-ins make ahead is
    `kept`, as it is in inference, they run as they do there, and making it is not counted.
    """
    example = as_inputs(example, model)
    trials = list(ways_to_run(model)) if meta else [as_it_is()]
    for number, way in enumerate(trials):
        try:
            return _traced(model, example, way, kept=kept)
        except operations.UnknownOperationError:
            raise
        except Exception as error:
            if number < len(trials) - 1:
                continue
            shapes = [tuple(leaf.shape) for leaf in tree_leaves(example) if isinstance(leaf, Tensor)]
            raise ValueError(
                f"{type(model).__name__} cannot run on an example of shape {shapes}: {error}"
            ) from error
    raise AssertionError("there is always a way to run a network")


def _traced(model: nn.Module, example: Example, way: Way, *, kept: bool = False) -> Trace:
    network = copy_to_run(model, way.own)
    inputs = tree_map_only(Tensor, way.given, example)  # a network may write to its input
    tracer = _Tracer(network, kept=kept)
    with torch.no_grad(), way.mode, noting_reads(tracer.readable), tracer:
        call_on(network, inputs)
    return tracer.record


def as_inputs(example: Example, model: nn.Module | None = None) -> Example:
    """An example as a network takes it: a shape becomes zeros of its type, a mapping a plain dictionary."""
    if isinstance(example, Mapping):  # a tokenizer's output is one too
        return dict(example)
    if isinstance(example, tuple | list) and example and all(type(size) is int for size in example):
        if min(example) < 0:
            raise ValueError(f"{tuple(example)} is not the shape of an input")
        own = () if model is None else model.parameters()
        types = (parameter.dtype for parameter in own if parameter.is_floating_point())
        return torch.zeros(tuple(example), dtype=next(types, None))
    if not isinstance(example, Tensor | tuple | list):
        raise TypeError(
            f"example is a {type(example).__name__}, not a tensor, a shape, or a tuple or dictionary"
        )
    return example


def call_on(network: nn.Module, example: Example) -> None:
    """Call a network on an example."""
    if isinstance(example, Tensor):
        network(example)
    elif isinstance(example, Mapping):
        network(**example)
    else:
        network(*example)


class _Tracer(TorchDispatchMode):
    """Counts every operation and knows which module is running, by hooks on the traced copy.

    A module whose `forward` is called by itself runs no hooks: what stands in its place enters it too.
    """

    def __init__(self, network: nn.Module, *, kept: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.record = Trace(
            collections.Counter(),
            collections.defaultdict(list),
            collections.defaultdict(list),
            collections.Counter(),
        )
        self.stack: list[tuple[str, nn.Module]] = []
        self.ahead = 0  # calls under way that make what is kept
        self.readable: dict[nn.Module, Callable[[], None]] = {}  # to be called when a weight is read
        self.layer_of: dict[str, str] = {}  # the parts of an understudy layer → the layer
        for path, module in network.named_modules():
            module.register_forward_pre_hook(self._enter(path), prepend=True, with_kwargs=True)
            module.register_forward_hook(self._leave(path))
            if not isinstance(module, torch.jit.ScriptModule):
                module.forward = self._entered(path, module, module.forward)
            if module._parameters.get("weight") is not None and not isinstance(module, Transform):
                self.readable[module] = functools.partial(self._note_read, path)
        for module in network.modules():
            if isinstance(module, Layer):
                if kept:
                    module._kept = Ahead(self._uncounted)
                else:  # the order that was found for inference is one for what is kept
                    module._execution = dataclasses.replace(module._execution, inference=None)
        for path, layer in stand_ins(network):
            self.layer_of |= {part: path for part, _ in layer.named_modules(prefix=path)}
            for transform in layer.transforms:  # a parent may read the weight instead of calling
                setattr(transform, "matrix", self._owned(path, layer, transform.matrix))  # noqa: B010

    @contextlib.contextmanager
    def _uncounted(self) -> Iterator[None]:
        self.ahead += 1
        try:
            yield
        finally:
            self.ahead -= 1

    def _note_read(self, path: str) -> None:
        """Another module may read a weight, instead of calling the one that holds it."""
        if all(running != path for running, _ in self.stack):
            self.record.weight_reads[path] += 1

    def _entered(self, path: str, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A module's forward, with the hooks of this where nobody has called the module itself."""
        enter, leave = self._enter(path), self._leave(path)

        @functools.wraps(forward)
        def entered(*args: Any, **kwargs: Any) -> Any:
            if self.stack and self.stack[-1][1] is module:
                return forward(*args, **kwargs)
            enter(module, args, kwargs)
            output = forward(*args, **kwargs)
            leave(module, args, output)
            return output

        return entered

    def _owned(self, path: str, layer: Layer, form: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Forming a layer's matrix is the layer's work, whoever asks for it."""

        def matrix() -> Tensor:
            self.stack.append((path, layer))
            try:
                return form()
            finally:
                self.stack.pop()

        return matrix

    def _enter(self, path: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.stack.append((path, module))
            first = first_input(args, kwargs)
            if isinstance(first, Tensor):
                self.record.inputs[path].append(tuple(first.shape))

        return hook

    def _leave(self, path: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            self.stack.pop()
            if isinstance(output, Tensor):
                self.record.outputs[path].append(tuple(output.shape))

        return hook

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not operations.has_rule(func):
            with self:  # an operation made of others is counted by its parts
                result = operations.in_parts(func, args, kwargs or {})
                if result is not NotImplemented:
                    return result
        result = func(*args, **(kwargs or {}))
        if self.ahead:
            return result
        count = operations.mult_adds(func, args, result)
        if any(isinstance(module, Transform | Layer) for _, module in self.stack):
            count += operations.product_mult_adds(func, result)
        self.record.mult_adds[self._owner()] += count
        return result

    def _owner(self) -> str:
        innermost = self.stack[-1][0] if self.stack else ""
        return self.layer_of.get(innermost, innermost)
