"""Trained networks by name: built-in ones with a file of weights, those of others with their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from understudy.students.file import is_saved, load
from understudy.students.weights import load_weights

from . import nets
from .models import UnknownModelError, create_model, hub_options, import_library


def trained_model(name: str, weights: str | Path | None = None, *, classes: int = 0) -> nn.Module:
    """The network of this name in evaluation mode, with the weights of a file or those that it comes with.

    A built-in network needs a file; `timm:NAME`, `torchvision:NAME` and `transformers:NAME` may be given one
    instead of their published weights; a factory brings its own. `classes` is how many a built-in network
    tells apart, where that is known.
    """
    if weights is None:
        if nets.is_builtin(name):
            raise ValueError(f"{name} comes without weights: give a file of them (--weights FILE)")
        return published_model(name).eval()
    network = create_model(name, **{"classes": classes} if classes and nets.is_builtin(name) else {})
    if not Path(weights).is_file():
        raise FileNotFoundError(f"no file of weights {str(weights)!r}")
    try:
        if Path(weights).suffix == ".safetensors" and is_saved(weights):
            network = load(weights, network)
        else:
            load_weights(network, weights)
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"{weights} does not fit {name}: {error}") from error
    return network.eval()


def published_model(name: str) -> nn.Module:
    """A network of another library with its published weights, or what a factory makes."""
    source, _, rest = name.partition(":")
    options: dict[str, dict[str, Any]] = {"timm": {"pretrained": True}, "torchvision": {"weights": "DEFAULT"}}
    try:
        if source == "transformers":
            made: nn.Module = import_library("transformers").AutoModel.from_pretrained(
                rest, **hub_options(rest)
            )
            return made
        return create_model(name, **options.get(source, {}))
    except (UnknownModelError, ImportError):
        raise
    except Exception as error:  # whatever a library raises without a network
        if source not in ("timm", "torchvision", "transformers"):
            raise
        raise ValueError(f"the weights of {name} cannot be had: {error}") from error


def normalisation(name: str, model: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The means and deviations by which a network's images are normalised, where it says so; else empty."""
    if not name.startswith("timm:"):
        return (), ()
    config: Any = model.pretrained_cfg
    return tuple(config["mean"]), tuple(config["std"])
