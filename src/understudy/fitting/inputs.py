"""Calibration data as a network takes them: a few batches of inputs, whatever the loader yields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

Inputs = Tensor | dict[str, Any]
OutputOf = Callable[[Any], Tensor]  # what a network returns → the tensor that matters
LABELS = ("label", "labels", "target", "targets")
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
        """Run the model, and take the tensor that matters of what it returns, of its real tokens."""
        return of_real_tokens(output_that_matters(self.forward(model), output_of), self.inputs)

    @property
    def mask(self) -> Tensor | None:
        """Which tokens of which sample are real, (samples, tokens); None where there is no such mask."""
        return _mask_of(self.inputs)

    def is_by_sample(self, leaf: Any) -> bool:
        """Whether a part of the inputs has something of its own for each sample."""
        return isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == self.size

    def to(self, device: torch.device) -> Batch:
        """A copy on a device: a network may write to its inputs."""
        moved = tree_map_only(Tensor, lambda tensor: tensor.to(device, copy=True), self.inputs)
        return dataclasses.replace(self, inputs=moved)


def _mask_of(inputs: Any) -> Tensor | None:
    mask = inputs.get(_MASK) if isinstance(inputs, Mapping) else None
    return mask.bool() if isinstance(mask, Tensor) and mask.dim() == 2 else None


def of_real_tokens(output: Tensor, inputs: Any) -> Tensor:
    """An output for each token, 0 where the mask of the inputs says that a token only fills up the batch."""
    mask = _mask_of(inputs)
    if mask is None or output.dim() < 3 or output.shape[:2] != mask.shape:
        return output
    return output.masked_fill(~mask.reshape(*mask.shape, *[1] * (output.dim() - 2)).to(output.device), 0)


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
            batch = _part(batch, 0, left)
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
        labels = next((given.pop(key) for key in LABELS if key in given), None)
        tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor) and leaf.dim()]
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


def _part(batch: Batch, start: int, stop: int) -> Batch:
    """Some samples of a batch; what belongs to all of them stays as it is."""

    def taken(tensor: Tensor) -> Tensor:
        return tensor[start:stop] if batch.is_by_sample(tensor) else tensor

    labels = None if batch.labels is None else batch.labels[start:stop]
    return Batch(tree_map_only(Tensor, taken, batch.inputs), stop - start, labels)


def held_back(batches: list[Batch], share: float = 0.125) -> tuple[list[Batch], list[Batch]]:
    """Batches to fit on, and the last samples, which decide; a lone sample does both."""
    left = max(1, round(share * sum(batch.size for batch in batches)))
    fit = list(batches)
    decide: list[Batch] = []
    while left and (len(fit) > 1 or fit[0].size > 1):
        last = fit.pop()
        if last.size > left:
            fit.append(_part(last, 0, last.size - left))
            last = _part(last, last.size - left, last.size)
        decide.insert(0, last)
        left -= last.size
        if not fit:  # one sample at least is fitted on
            fit, decide[0] = [first_sample(last)], _part(last, 1, last.size)
            break
    return fit, decide or fit


def some_of_each(batches: list[Batch], count: int) -> list[Batch]:
    """About `count` samples: as many of each batch, or one of each of the first."""
    each = max(1, count // len(batches))
    return [_part(batch, 0, min(each, batch.size)) for batch in batches[:count]]


def first_sample(batch: Batch) -> Batch:
    """A batch of one."""
    return _part(batch, 0, 1)


def joined(batches: list[Batch]) -> Batch:
    """As one batch those that go together with the first: of its shape, or filled up where a mask says so."""
    first = batches[0]
    alike = [batch for batch in batches if _goes_with(batch, first)]
    _, form = tree_flatten(first.inputs)
    whole = [
        _cat(list(leaves)) if first.is_by_sample(leaves[0]) else leaves[0]
        for leaves in zip(*(tree_leaves(batch.inputs) for batch in alike), strict=True)
    ]
    return Batch(tree_unflatten(whole, form), sum(batch.size for batch in alike))


def _goes_with(batch: Batch, first: Batch) -> bool:
    """Whether two can be one batch: the same inputs, of one shape but for filled up tokens.

    What belongs to all samples is the same in both.
    """
    (mine, my_form), (others, form) = tree_flatten(batch.inputs), tree_flatten(first.inputs)
    filled = 2 if first.mask is not None else 1

    def is_alike(own: Any, other: Any) -> bool:
        if batch.is_by_sample(own) != first.is_by_sample(other):
            return False
        if first.is_by_sample(other):
            return bool(own.dim() == other.dim() and own.shape[filled:] == other.shape[filled:])
        if isinstance(own, Tensor) and isinstance(other, Tensor):
            return torch.equal(own, other)
        return own is other or (isinstance(own, int | float | str) and own == other)

    return my_form == form and all(map(is_alike, mine, others))


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
