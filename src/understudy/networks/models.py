"""Networks by name: built in, from timm, torchvision or transformers, or from any importable factory."""

from __future__ import annotations

import importlib
import importlib.metadata
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from understudy._util.factories import FactoryError, call_factory
from understudy._util.guard import the_network
from understudy._util.nearest import hint
from understudy.counting.trace import Example

from . import nets

_HUB_SECONDS = 3.0  # for the hub to answer
_EXTRAS = {"timm": "vision", "torchvision": "vision", "transformers": "text"}


class UnknownModelError(ValueError):
    """No network has this name.

    >>> create_model("wrn_28")
    Traceback (most recent call last):
    ...
    understudy.networks.models.UnknownModelError: no network 'wrn_28' (did you mean 'wrn_28_10'...
    """


def list_models() -> list[str]:
    """The built-in names; `wrn_DEPTH_WIDTH` of other depths and widths is built in as well.

    >>> "wrn_28_10" in list_models()
    True
    """
    return nets.names()


def create_model(name: str, **options: Any) -> nn.Module:
    """A network by name; options go to whoever makes it.

    `wrn_28_10`, `darts`, … are built in; `timm:NAME` and `torchvision:NAME` are made without weights unless
    options such as `pretrained=True` ask for them; `transformers:NAME` takes a model type ("bert"), a local
    folder or a hub name and makes the network from its configuration; `package.module:factory` and
    `path/to/file.py:factory` call the factory.

    >>> type(create_model("wrn_16_1", classes=100)).__name__
    'WideResNet'
    """
    source, _, rest = name.partition(":")
    if not rest:
        if not nets.is_builtin(name):
            raise UnknownModelError(f"no network {name!r}{hint(name, nets.names())}; {_FORMS}")
        return nets.build(name, **options)
    makers: dict[str, Callable[..., nn.Module]] = {
        "timm": _from_timm,
        "torchvision": _from_torchvision,
        "transformers": _from_transformers,
    }
    if source in makers:
        return makers[source](rest, **options)
    return _from_factory(name, **options)


def weightless(name: str) -> AbstractContextManager[Any]:
    """A block in which `create_model` spends no memory where it can do without.

    Built-in networks are made without weights; others may look at values while they are made.
    """
    return torch.device("meta" if nets.is_builtin(name) else "cpu")


def example_input(name: str, model: nn.Module, shape: tuple[int, ...] | None = None) -> Example:
    """A batch of one for the network of this name: of `shape`, or else of what the network is made for.

    >>> tuple(example_input("wrn_16_1", create_model("wrn_16_1")).shape)
    (1, 3, 32, 32)
    """
    the_network(model, lazy=True)
    source, _, rest = name.partition(":")
    if source == "transformers":
        length = shape[0] if shape else 128
        return {"input_ids": torch.zeros(1, length, dtype=torch.long, device="meta")}
    if shape is None and not rest:
        shape = nets.input_shape(name)
    if shape is None and source == "timm":
        shape = tuple(model.pretrained_cfg["input_size"])  # type: ignore[index]
    if shape is None and source == "torchvision":
        shape = (3, 299, 299) if rest.startswith("inception") else (3, 224, 224)
    if shape is None:
        raise ValueError(f"the input shape of {name!r} is not known: give one, such as --input 3,224,224")
    return torch.zeros(1, *shape, device="meta")


_FORMS = (
    "other forms are timm:NAME, torchvision:NAME, transformers:NAME, package.module:factory and "
    "path/to/file.py:factory"
)


def import_library(package: str) -> Any:
    """timm, torchvision or transformers; an ImportError says what brings it."""
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError) as error:  # a wheel that does not fit its torch raises the latter
        missing = isinstance(error, ModuleNotFoundError) and error.name == package
        if _version("torchvision") and "torchvision" in str(error) and not missing:
            raise ImportError(
                f"torchvision {_version('torchvision')} and torch {torch.__version__} do not fit ({error}): "
                "their builds differ, one with CUDA and one without. Reinstall both from one index: "
                "pip install --force-reinstall torch torchvision"
            ) from error
        brings = f"pip install 'understudy[{_EXTRAS[package]}]' brings it"
        if _version(package) and not missing:
            brings = f"version {_version(package)} is installed, but something that it needs is not"
        raise ImportError(f"{package} cannot be imported ({error}); {brings}") from error


def _version(package: str) -> str:
    """The version that is installed; empty where none is."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _from_timm(name: str, **options: Any) -> nn.Module:
    timm = import_library("timm")
    if not timm.is_model(name):
        raise UnknownModelError(f"timm has no network {name!r}{hint(name, timm.list_models())}")
    model: nn.Module = timm.create_model(name, **options)
    return model


def _from_torchvision(name: str, **options: Any) -> nn.Module:
    models = import_library("torchvision").models
    known = models.list_models()
    if name not in known:
        raise UnknownModelError(f"torchvision has no network {name!r}{hint(name, known)}")
    model: nn.Module = models.get_model(name, **options)
    return model


def _from_transformers(name: str, **options: Any) -> nn.Module:
    transformers = import_library("transformers")
    types = list(transformers.CONFIG_MAPPING)
    if name in types:
        config = transformers.AutoConfig.for_model(name, **options)
    else:
        try:
            config = transformers.AutoConfig.from_pretrained(name, **options, **hub_options(name))
        except (OSError, ValueError) as error:
            raise UnknownModelError(
                f"transformers has no model type or folder {name!r}{hint(name, types)}: {error}"
            ) from error
    model: nn.Module = transformers.AutoModel.from_config(config)
    return model


def hub_options(name: str) -> dict[str, Any]:
    """How transformers should look for a name: where the hub cannot be reached, only on this machine.

    It would ask again and again for half a minute. What goes through a proxy is left to it.
    """
    if Path(name).is_dir() or urllib.request.getproxies():
        return {}
    hub = urllib.parse.urlsplit(importlib.import_module("huggingface_hub").constants.ENDPOINT)
    try:
        with socket.create_connection((hub.hostname or "", hub.port or 443), timeout=_HUB_SECONDS):
            return {}
    except OSError:
        return {"local_files_only": True}


def _from_factory(place: str, **options: Any) -> nn.Module:
    try:
        made = call_factory(place, **options)
    except FactoryError as error:
        raise UnknownModelError(f"{error}; {_FORMS}") from error
    if not isinstance(made, nn.Module):
        raise UnknownModelError(f"{place} gave a {type(made).__name__}, not a torch.nn.Module")
    return made
