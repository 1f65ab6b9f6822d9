"""Batches to make a file eight-bit by and to judge it by: read, checked against the example, and used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from understudy.counting.trace import Example, as_inputs
from understudy.fitting.inputs import LABELS

from .graph import as_call, outputs, single
from .runtimes import Runner


@dataclasses.dataclass(frozen=True)
class Samples:
    """Inputs of one call, in single precision, and a class for each sample where there are any."""

    inputs: Example
    labels: Tensor | None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How the outputs of a file and of its network compare, as shares of so many samples."""

    samples: int
    agreement: float  # the largest output is the same one
    float_accuracy: float | None  # it is the label: of the network
    accuracy: float | None  # and of the file


def sample_count(example: Example) -> int:
    """Samples of an example: the first axis of its first tensor that has one."""
    sizes = [len(leaf) for leaf in _tensors(as_inputs(example)) if leaf.dim()]
    if not sizes:
        raise ValueError("the example holds no tensor with an axis of samples")
    if not sizes[0]:
        raise ValueError(f"the example holds no sample: it is of shape {_shape(as_inputs(example))}")
    return sizes[0]


def read_samples(name: str, given: Any, example: Example, classes: int | None) -> list[Samples]:
    """Every batch of what was given as `name`, as the example is, with its labels where it has any.

    A batch is inputs, (inputs, labels), or a mapping that may hold labels. Where there are no `classes`,
    the network's outputs are none, and labels say nothing of them.
    """
    if isinstance(given, Tensor | Mapping | str) or not isinstance(given, Iterable):
        what = "one batch" if isinstance(given, Tensor | Mapping) else f"a {type(given).__name__}"
        raise TypeError(f"{name} is {what}: it takes a list of batches like the example, {name}=[x1, x2]")
    read = [_read(f"{name}[{place}]", batch, example, classes) for place, batch in enumerate(given)]
    if not read:
        raise ValueError(
            f"{name} holds no batch: it takes a list of batches like the example, {name}=[x1, x2]"
        )
    return read


def _read(where: str, batch: Any, example: Example, classes: int | None) -> Samples:
    inputs, labels = _parted(where, batch, example)
    tensors, expected = _tensors(inputs), _tensors(example)
    floats = [leaf for leaf in tensors if leaf.is_floating_point()]
    if any(leaf.is_meta for leaf in tensors) or (floats and not any(bool(leaf.any()) for leaf in floats)):
        raise ValueError(f"{where} is a shape, or all zero: real batches are needed")
    inputs = tree_map_only(Tensor, lambda leaf: single(leaf.detach().cpu()), inputs)
    tensors = _tensors(inputs)
    if [leaf.shape[1:] for leaf in tensors] != [leaf.shape[1:] for leaf in expected] or any(
        bool(own.dim()) != bool(other.dim()) for own, other in zip(tensors, expected, strict=True)
    ):
        raise ValueError(
            f"{where} is of shape {_shape(inputs)}, the example of shape {_shape(example)}: "
            "they may differ in the first axis alone"
        )
    if (kinds := [leaf.dtype for leaf in tensors]) != (wanted := [leaf.dtype for leaf in expected]):
        raise ValueError(f"{where} is of {_listed(kinds)}, the example of {_listed(wanted)}")
    counts = {len(leaf) for leaf in tensors if leaf.dim()}
    if len(counts) != 1 or not min(counts):
        raise ValueError(
            f"{where} is of shape {_shape(inputs)}: every input needs as many samples, and one at least"
        )
    if not all(bool(leaf.isfinite().all()) for leaf in tensors):
        raise ValueError(f"{where} holds NaN or infinities: numbers are needed")
    return Samples(inputs, _labels(where, labels, min(counts), classes))


def _parted(where: str, batch: Any, example: Example) -> tuple[Example, Any]:
    """The inputs of a batch, in the order of the example's, and what may be labels."""
    labels = None
    if not _is_like(batch, example) and isinstance(batch, tuple | list) and len(batch) == 2:
        batch, labels = batch
    if not _is_like(batch, example):
        raise ValueError(f"{where} is not given as the example is: it holds other inputs")
    inputs = as_inputs(batch)
    if isinstance(example, Mapping) and isinstance(inputs, Mapping):
        if labels is None:
            labels = next((inputs[key] for key in LABELS if key in inputs and key not in example), None)
        inputs = {key: inputs[key] for key in example}
    return inputs, labels


def _is_like(batch: Any, example: Example) -> bool:
    """Whether it holds the same inputs, by place or by name; a mapping may hold more."""
    if not isinstance(batch, Tensor | tuple | list | Mapping):
        return False
    inputs = as_inputs(batch)
    if isinstance(inputs, Mapping) and isinstance(example, Mapping):
        inputs = {key: inputs[key] for key in example if key in inputs}
    return bool(tree_flatten(as_call(inputs))[1] == tree_flatten(as_call(example))[1])


def _labels(where: str, labels: Any, count: int, classes: int | None) -> Tensor | None:
    """Labels that name a class for every sample; all others are passed over."""
    if not isinstance(labels, Tensor) or labels.dim() != 1 or labels.is_floating_point() or classes is None:
        return None
    if len(labels) != count:
        raise ValueError(f"{where} has {len(labels)} labels for {count} samples")
    known: Tensor = labels.detach().cpu().long()
    least, most = int(known.min()), int(known.max())
    if least < 0 or most >= classes:
        raise ValueError(
            f"{where} has labels of {least}..{most}, the network outputs for the classes 0..{classes - 1}: "
            "leave them out"
        )
    return known


def judge(runner: Runner, network: nn.Module, batches: Sequence[Samples]) -> Verdict:
    """Run a file and its network on the same samples."""
    count = same = right = float_right = 0
    for batch in batches:
        got, wanted = (
            made.reshape(len(made), -1).argmax(1)
            for made in (runner(batch.inputs)[0], outputs(network, batch.inputs)[0])
        )
        count, same = count + len(wanted), same + int((got == wanted).sum())
        if batch.labels is not None:
            right += int((got == batch.labels).sum())
            float_right += int((wanted == batch.labels).sum())
    is_labelled = all(batch.labels is not None for batch in batches)
    return Verdict(
        samples=count,
        agreement=same / count,
        float_accuracy=float_right / count if is_labelled else None,
        accuracy=right / count if is_labelled else None,
    )


def _tensors(inputs: Example) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]


def _shape(inputs: Example) -> str:
    return _listed([tuple(leaf.shape) for leaf in _tensors(inputs)])


def _listed(values: Sequence[tuple[int, ...] | torch.dtype]) -> str:
    return ", ".join(map(str, values))
