"""A network as one captured graph for any batch: what every file format is written from."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from understudy.counting.trace import Example, as_inputs
from understudy.layers.choosing import Purpose
from understudy.students.lower import lowered_for
from understudy.students.wrappers import unwrapped
from understudy.transforms import Transform

from .together import compute_together_

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # and what else terminals are told
_METADATA = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node", "custom", "torch_fn")


class ExportError(ValueError):
    """A network that a file format cannot hold, or a file that does not give the network's outputs.

    >>> import torch, understudy as us
    >>> class Drawing(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x + torch.randn_like(x)
    >>> try:
    ...     us.export(Drawing(), "drawing.pt2", (1, 4))
    ... except us.ExportError:
    ...     print("no file is left")
    no file is left
    """


def first_line(error: BaseException) -> str:
    """What an error says before it explains itself, without colours."""
    return (_COLOUR.sub("", str(error)).strip().splitlines() or [repr(error)])[0]


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An error, the one that it was raised from or after, and so on."""
    follows: BaseException | None = error
    while follows is not None:
        yield follows
        follows = follows.__cause__ or follows.__context__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters warn, log and print of themselves; what is wrong with a network they raise as well."""
    before = logging.root.manager.disable
    streams = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with warnings.catch_warnings(), streams[0], streams[1]:
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def _halve_(network: nn.Module) -> None:
    """Have a network run in half precision that takes and gives single precision."""

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return tree_map_only(Tensor, _halved, (args, kwargs))

    def after(_: nn.Module, __: tuple[Any, ...], given: Any) -> Any:
        return tree_map_only(Tensor, single, given)

    network.half()
    network.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    network.register_forward_hook(after)


def _halved(tensor: Tensor) -> Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def single(tensor: Tensor) -> Tensor:
    """A tensor of numbers in single precision; others as they are."""
    return tensor.float() if tensor.is_floating_point() else tensor


def as_call(example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as the arguments of a call, by place and by name."""
    inputs = as_inputs(example)
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs,) if isinstance(inputs, Tensor) else tuple(inputs), {}


@contextlib.contextmanager
def called_attention() -> Iterator[None]:
    """PyTorch's encoders call their layers one by one.

    Their fused kernel is of no other runtime, and gives zeros where a mask says that an input is padding.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def outputs(network: nn.Module, example: Example) -> list[Tensor]:
    """The tensors that a network gives in inference, in order; a ValueError where it cannot run."""
    args, kwargs = as_call(example)
    try:
        with torch.no_grad(), called_attention():
            return [leaf for leaf in tree_leaves(network(*args, **kwargs)) if isinstance(leaf, Tensor)]
    except Exception as error:  # whatever a network raises
        shapes = [tuple(leaf.shape) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        raise ValueError(
            f"{type(network).__name__} cannot run on an example of shape {shapes}: {first_line(error)}"
        ) from error


def rebatched(example: Example, size: int) -> Example:
    """An example with another number of samples: those it has, again and again."""

    def taken(tensor: Tensor) -> Tensor:
        return tensor if tensor.dim() == 0 else tensor[torch.arange(size) % len(tensor)]

    changed: Example = tree_map_only(Tensor, taken, as_inputs(example))
    return changed


def lively(example: Example) -> Example:
    """An example to compare outputs by: what is all zero, or has a shape only, becomes normal numbers.

    As the network it is in single precision.
    """
    generator = torch.Generator().manual_seed(0)

    def filled(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point() and (tensor.is_meta or not bool(tensor.any())):
            return torch.randn(tensor.shape, generator=generator)
        return torch.zeros_like(tensor, device="cpu") if tensor.is_meta else single(tensor.cpu())

    changed: Example = tree_map_only(Tensor, filled, as_inputs(example))
    return changed


def ready(model: nn.Module) -> nn.Module:
    """A copy of a network for inference: on the CPU, in evaluation mode and single precision."""
    return copy.deepcopy(unwrapped(model)).cpu().float().eval()


def capture(
    model: nn.Module, example: Example, *, half: bool = False, fixed: bool = False
) -> torch.export.ExportedProgram:
    """The graph of a network's lowered copy: for any number of samples, quickest for those of the example.

    Two samples stand for any number: one would be taken for a constant.
    """
    with called_attention():
        network = lowered_for(model, Purpose(fixed=fixed, file=True), example).requires_grad_(False)
    for module in network.modules():
        if isinstance(module, Transform):
            module.leave_to_the_graph_()
    if not fixed:  # what is quantised shall be a weight that a layer holds, or follow from its own
        compute_together_(network)
    args, kwargs = as_call(rebatched(example, 2))
    batch = torch.export.Dim("batch")
    shapes = tree_map_only(Tensor, lambda tensor: {0: batch} if tensor.dim() else None, (args, kwargs))
    in_turn, by_name = shapes
    if half:
        _halve_(network)
    try:
        with quiet(), torch.no_grad(), called_attention():
            program = torch.export.export(
                network, args, kwargs, dynamic_shapes=by_name or in_turn, strict=False
            )
    except Exception as error:  # whatever the tracer of PyTorch meets
        raise ExportError(
            f"{type(model).__name__} cannot be captured as one graph for any batch: {_reason(error)}"
        ) from error
    for node in program.graph.nodes:
        for name in _METADATA:  # paths of source files and more, larger than small networks
            node.meta.pop(name, None)
    return program


def _reason(error: BaseException) -> str:
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if any(isinstance(one, GuardOnDataDependentSymNode) for one in chain_of(error)):
        return (
            "which operations it runs depends on values that it computes (an if, a loop or a size); "
            "torch.where and torch.cond choose within a graph"
        )
    return first_line(error)
