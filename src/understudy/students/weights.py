"""Weights under other names: pair two state dicts by their shapes and by the order of what looks alike."""

from __future__ import annotations

import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from understudy._util.guard import the_network

from .versions import versioned

Shapes = Mapping[str, tuple[int, ...]]
Tree = dict[str, Any]  # name → Tree, or the full key of a tensor


def load_weights(
    model: nn.Module, source: str | Path | Mapping[str, Tensor], mapping: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Load a state dict whose keys may differ from the model's; returns source key → model key.

    Keys are first rewritten by `mapping` (old prefix → new prefix). If they are then the model's own, they
    are taken as they are. Otherwise the two hierarchies are matched from the top: modules with the same
    shapes inside correspond, and among alike ones the first to the first, in natural order. Where all tensors
    fit one after the other as they are stored, by shape and last name, and that is another pairing, they are
    paired so, with a warning; but not where the names are sorted and pair in natural order. Anything left
    over on either side is an error, and the model is then unchanged.

    >>> from torch import nn
    >>> weights = {"first.weight": torch.ones(2, 3), "first.bias": torch.ones(2)}
    >>> load_weights(nn.Sequential(nn.Linear(3, 2)), weights)
    {'first.bias': '0.bias', 'first.weight': '0.weight'}
    """
    the_network(model, weights=True)
    state = _weights(source if isinstance(source, Mapping) else _read(Path(source)))
    renamed = {_rename(key, mapping or {}): key for key in state}
    wanted = _weights(model.state_dict())
    if set(renamed) == set(wanted):
        pairs = {original: key for key, original in renamed.items()}
    else:
        shapes = {key: tuple(state[original].shape) for key, original in renamed.items()}
        targets = {key: tuple(tensor.shape) for key, tensor in wanted.items()}
        found = _match(_tree(shapes), _tree(targets), shapes, targets)
        # The order of a file that sorts its names, as safetensors does, tells nothing.
        tells = list(shapes) != sorted(shapes) or len(found) < max(len(shapes), len(targets))
        in_order = dict(zip(shapes, targets, strict=False))
        if tells and found != in_order and _fits_in_order(shapes, targets):
            found = in_order
            warnings.warn(
                f"the names of the weights are not those of {type(model).__name__}: all {len(found)} tensors "
                "were paired in the order in which they are stored, in which every shape fits",
                stacklevel=2,
            )
        pairs = {renamed[key]: target for key, target in found.items()}
    for original, key in pairs.items():
        if state[original].shape != wanted[key].shape:
            shape, expected = tuple(state[original].shape), tuple(wanted[key].shape)
            raise ValueError(f"{original!r} has shape {shape}, but {key!r} {expected}")
    missing = set(wanted) - set(pairs.values())
    if missing or len(pairs) != len(state):
        left = sorted(set(state) - set(pairs))[:3]
        raise ValueError(
            f"the weights do not fit {type(model).__name__}: {len(pairs)} of {len(state)} tensors found a "
            f"place; left over {left}, missing {sorted(missing)[:3]}"
        )
    placed = {key: state[original] for original, key in pairs.items()}
    model.load_state_dict(versioned(placed, model), strict=False)
    return pairs


def _fits_in_order(shapes: Shapes, targets: Shapes) -> bool:
    """Whether the tensors have the same shapes and last names, one after the other."""
    ours, theirs = ([(_leaf(key), shape) for key, shape in side.items()] for side in (shapes, targets))
    return ours == theirs


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix in (".pt", ".pth"):
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"{path} is not a whole file of weights alone: {error}") from error
        loaded = loaded.get("state_dict", loaded) if isinstance(loaded, Mapping) else loaded
        if not isinstance(loaded, Mapping) or not all(isinstance(item, Tensor) for item in loaded.values()):
            raise ValueError(f"{path} does not hold a state dict")
        return dict(loaded)
    try:
        state: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from error
    return state


def _weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the step counters of normalisation layers, which many files leave out."""
    return {key: tensor for key, tensor in state.items() if not key.endswith("num_batches_tracked")}


def _rename(key: str, mapping: Mapping[str, str]) -> str:
    for old, new in mapping.items():
        if key == old or key.startswith(f"{old}."):
            return (new + key.removeprefix(old)).removeprefix(".")
    return key


def _tree(shapes: Shapes) -> Tree:
    """The hierarchy of keys; a module that holds nothing but one module is passed through."""
    tree: Tree = {}
    for key in shapes:
        *parents, leaf = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = key
    collapsed: Tree = _collapsed(tree)
    return collapsed


def _collapsed(node: Any) -> Any:
    while isinstance(node, dict) and len(node) == 1 and isinstance(next(iter(node.values())), dict):
        node = next(iter(node.values()))
    return {name: _collapsed(child) for name, child in node.items()} if isinstance(node, dict) else node


def _signature(name: str, node: Any, shapes: Shapes) -> tuple[Any, ...]:
    """What a node looks like from outside: for a tensor its name and shape, for a module those within it."""
    if isinstance(node, dict):
        within = (_signature(child, item, shapes) for child, item in node.items())
        return ("module", *sorted(within, key=repr))
    return ("tensor", name, *shapes[node])


def _natural(name: str) -> list[Any]:
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _match(source: Tree, target: Tree, shapes: Shapes, wanted: Shapes) -> dict[str, str]:
    """Pair the children that look alike, in natural order, and go on inside them."""
    pairs: dict[str, str] = {}
    alike: dict[tuple[Any, ...], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, tree, lookup in ((0, source, shapes), (1, target, wanted)):
        for name in sorted(tree, key=_natural):
            alike[_signature(name, tree[name], lookup)][side].append(name)
    for ours, theirs in alike.values():
        if len(ours) != len(theirs):
            continue
        for name, other in zip(ours, theirs, strict=True):
            if isinstance(source[name], dict):
                pairs |= _match(source[name], target[other], shapes, wanted)
            else:
                pairs[source[name]] = target[other]
    return pairs
