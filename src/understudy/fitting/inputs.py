"""Calibration data as a network takes them: a few batches of inputs, whatever the loader yields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

Inputs = Tensor | dict[str, Any]
OutputOf = Callable[[Any], Tensor]  # what a network returns → the tensor that matters
_LABELS = ("label", "labels", "target", "targets")
_MASK = "attention_mask"


class DataError(ValueError):
    """Data that a network cannot be calibrated on."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Inputs of one call, how many samples they are, and their labels where the data have any."""

    inputs: Inputs
    size: int
    labels: Tensor | None = None

    def forward(self, model: nn.Module) -> Any:
        """Run the model; what it returns is nobody's concern here."""
        return model(**self.inputs) if isinstance(self.inputs, dict) else model(self.inputs)

    def call(self, model: nn.Module, output_of: OutputOf | None = None) -> Tensor:
        """Run the model, and take the tensor that matters of what it returns.

        An output for each token is 0 where the mask says that a token only fills up the batch.
        """
        taken = output_that_matters(self.forward(model), output_of)
        mask = self.mask
        if mask is None or taken.dim() < 3 or taken.shape[:2] != mask.shape:
            return taken
        return taken * mask.reshape(*mask.shape, *[1] * (taken.dim() - 2)).to(taken)

    @property
    def mask(self) -> Tensor | None:
        """Which tokens of which sample are real, (samples, tokens); None where there is no such mask."""
        mask = self.inputs.get(_MASK) if isinstance(self.inputs, dict) else None
        return mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None

    def to(self, device: torch.device) -> Batch:
        """A copy on a device: a network may write to its inputs."""
        moved = tree_map_only(Tensor, lambda tensor: tensor.to(device, copy=True), self.inputs)
        return dataclasses.replace(self, inputs=moved)


def output_that_matters(
    returned: Any, output_of: OutputOf | None = None, what: str = "the network"
) -> Tensor:
    """What `output_of` takes of what a network returned, by default the first tensor of numbers."""
    if output_of is not None:
        return output_of(returned)
    try:
        return first_tensor(returned, what)
    except DataError as error:
        raise DataError(f"{error}; a function given as output_of takes the one that matters") from None


def first_tensor(returned: Any, what: str) -> Tensor:
    """The first tensor of floating numbers of what was returned: logits, hidden states, but no lone loss."""
    leaves = tree_leaves(dict(returned) if isinstance(returned, Mapping) else returned)
    for leaf in leaves:
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dim():
            return leaf
    raise DataError(f"{what} gave a {type(returned).__name__} without a tensor of numbers in it")


def read_batches(data: Iterable[Any] | Tensor, samples: int) -> list[Batch]:
    """At most so many samples of what a loader yields: tensors, (inputs, labels), or dictionaries."""
    if isinstance(data, Tensor):
        data = data.split(128)
    if isinstance(data, Mapping):
        data = [data]
    try:
        items = iter(data)
    except TypeError:
        raise DataError(f"data is a {type(data).__name__}, not batches of inputs") from None
    if samples < 1:
        raise DataError(f"samples is {samples}, not at least 1")
    batches: list[Batch] = []
    left = samples
    for item in items:
        batch = _batch(item)
        if batch.size > left:
            batch = _cut(batch, left)
        batches.append(batch)
        left -= batch.size
        if left <= 0:
            break
    if not batches:
        raise DataError("the data hold no batch")
    return batches


def _batch(item: Any) -> Batch:
    if isinstance(item, Mapping):
        given = dict(item)
        labels = next((given.pop(key) for key in _LABELS if key in given), None)
        tensors = [value for value in given.values() if isinstance(value, Tensor)]
        if not tensors:
            raise DataError(f"a batch holds {', '.join(map(str, given)) or 'nothing'}, and no tensor")
        if not len(tensors[0]):
            raise DataError("a batch is a dictionary of tensors without a sample")
        return Batch(given, len(tensors[0]), labels if isinstance(labels, Tensor) else None)
    if isinstance(item, tuple | list):
        if not item or not isinstance(item[0], Tensor):
            raise DataError(f"a batch is a {type(item).__name__} that does not begin with a tensor")
        is_labelled = len(item) == 2 and isinstance(item[1], Tensor) and not item[1].is_floating_point()
        labels = item[1] if is_labelled and item[1].dim() == 1 else None
        return Batch(item[0], len(item[0]), labels)
    if not isinstance(item, Tensor):
        raise DataError(f"a batch is a {type(item).__name__}, not a tensor, (inputs, labels) or a dictionary")
    if item.dim() == 0 or len(item) == 0:
        raise DataError(f"a batch has the shape {tuple(item.shape)}: it holds no sample")
    return Batch(item, len(item))


def _cut(batch: Batch, size: int) -> Batch:
    """The first samples of a batch."""

    def head(tensor: Tensor) -> Tensor:
        return tensor[:size] if tensor.dim() and len(tensor) == batch.size else tensor

    labels = None if batch.labels is None else batch.labels[:size]
    return Batch(tree_map_only(Tensor, head, batch.inputs), size, labels)


def held_back(batches: list[Batch], share: float = 0.125) -> tuple[list[Batch], list[Batch]]:
    """Batches to fit on, and the last samples, which decide; a lone sample does both."""
    left = max(1, round(share * sum(batch.size for batch in batches)))
    fit = list(batches)
    decide: list[Batch] = []
    while left and (len(fit) > 1 or fit[0].size > 1):
        last = fit.pop()
        if last.size > left:
            fit.append(_cut(last, last.size - left))
            last = _tail(last, last.size - left)
        decide.insert(0, last)
        left -= last.size
        if not fit:  # one sample at least is fitted on
            fit, decide[0] = [first_sample(last)], _tail(last, 1)
            break
    return fit, decide or fit


def _tail(batch: Batch, start: int) -> Batch:
    def tail(tensor: Tensor) -> Tensor:
        return tensor[start:] if tensor.dim() and len(tensor) == batch.size else tensor

    labels = None if batch.labels is None else batch.labels[start:]
    return Batch(tree_map_only(Tensor, tail, batch.inputs), batch.size - start, labels)


def first_sample(batch: Batch) -> Batch:
    """A batch of one."""
    return _cut(batch, 1)


def joined(batches: list[Batch]) -> Batch:
    """As one batch those that go together with the first: of its shape, or filled up where a mask says so."""
    first = batches[0]
    if isinstance(first.inputs, Tensor):
        tensors = [one.inputs for one in batches if isinstance(one.inputs, Tensor)]
        alike = [tensor for tensor in tensors if tensor.shape[1:] == first.inputs.shape[1:]]
        return Batch(torch.cat(alike), sum(map(len, alike)))
    keys = [key for key, value in first.inputs.items() if isinstance(value, Tensor)]
    others = [one for one in batches if _goes_with(one, first, keys)]
    parts = {key: [one.inputs[key] for one in others] for key in keys}  # type: ignore[index]
    size = sum(one.size for one in others)
    return Batch({**first.inputs, **{key: _cat(tensors) for key, tensors in parts.items()}}, size)


def _goes_with(batch: Batch, first: Batch, keys: list[str]) -> bool:
    """Whether two dictionaries can be one batch: the same tensors, of one shape but for filled up tokens."""
    if not isinstance(batch.inputs, dict) or not isinstance(first.inputs, dict):
        return False
    for key in keys:
        mine, other = batch.inputs.get(key), first.inputs[key]
        if not isinstance(mine, Tensor) or mine.dim() != other.dim():
            return False
        filled = 2 if first.mask is not None else 1
        if mine.shape[filled:] != other.shape[filled:]:
            return False
    return True


def _cat(tensors: list[Tensor]) -> Tensor:
    """One after another, with zeros behind those that are shorter along the second axis."""
    if tensors[0].dim() < 2:
        return torch.cat(tensors)
    longest = max(tensor.shape[1] for tensor in tensors)
    wide = []
    for tensor in tensors:
        room = tensor.new_zeros(tensor.shape[0], longest - tensor.shape[1], *tensor.shape[2:])
        wide.append(torch.cat([tensor, room], dim=1))
    return torch.cat(wide)
