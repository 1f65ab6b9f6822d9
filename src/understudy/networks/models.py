"""Networks by name: built in, from timm, torchvision or transformers, or from any importable factory."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from understudy.counting.trace import Example

from . import nets

_EXTRAS = {"timm": "vision", "torchvision": "vision", "transformers": "text"}


class UnknownModelError(ValueError):
    """No network has this name."""


def list_models() -> list[str]:
    """The built-in names; `wrn_DEPTH_WIDTH` of other depths and widths is built in as well."""
    return nets.names()


def create_model(name: str, **options: Any) -> nn.Module:
    """A network by name; options go to whoever makes it.

    `wrn_28_10`, `darts`, … are built in; `timm:NAME` and `torchvision:NAME` are made without weights unless
    options such as `pretrained=True` ask for them; `transformers:NAME` takes a model type ("bert"), a local
    folder or a hub name and makes the network from its configuration; `package.module:factory` calls the
    factory.
    """
    source, _, rest = name.partition(":")
    if not rest:
        if not nets.is_builtin(name):
            raise UnknownModelError(f"no network {name!r}{_nearest(name, nets.names())}; {_FORMS}")
        return nets.build(name, **options)
    makers: dict[str, Callable[..., nn.Module]] = {
        "timm": _from_timm,
        "torchvision": _from_torchvision,
        "transformers": _from_transformers,
    }
    if source in makers:
        return makers[source](rest, **options)
    return _from_factory(source, rest, **options)


def example_input(name: str, model: nn.Module, shape: tuple[int, ...] | None = None) -> Example:
    """A batch of one for the network of this name: of `shape`, or else of what the network is made for."""
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
        raise ValueError(f"the input shape of {name!r} is not known: give one, such as 3,224,224")
    return torch.zeros(1, *shape, device="meta")


_FORMS = "other forms are timm:NAME, torchvision:NAME, transformers:NAME and package.module:factory"


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _import(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError) as error:  # a wheel that does not fit its torch raises the latter
        raise ImportError(
            f"{package} cannot be imported ({error}); pip install 'understudy[{_EXTRAS[package]}]' brings it"
        ) from error


def _from_timm(name: str, **options: Any) -> nn.Module:
    timm = _import("timm")
    if not timm.is_model(name):
        raise UnknownModelError(f"timm has no network {name!r}{_nearest(name, timm.list_models())}")
    model: nn.Module = timm.create_model(name, **options)
    return model


def _from_torchvision(name: str, **options: Any) -> nn.Module:
    models = _import("torchvision").models
    known = models.list_models()
    if name not in known:
        raise UnknownModelError(f"torchvision has no network {name!r}{_nearest(name, known)}")
    model: nn.Module = models.get_model(name, **options)
    return model


def _from_transformers(name: str, **options: Any) -> nn.Module:
    transformers = _import("transformers")
    types = list(transformers.CONFIG_MAPPING)
    if name in types:
        config = transformers.AutoConfig.for_model(name, **options)
    else:
        try:
            config = transformers.AutoConfig.from_pretrained(name, **options)
        except (OSError, ValueError) as error:
            raise UnknownModelError(
                f"transformers has no model type or folder {name!r}{_nearest(name, types)}: {error}"
            ) from error
    model: nn.Module = transformers.AutoModel.from_config(config)
    return model


def _from_factory(package: str, attribute: str, **options: Any) -> nn.Module:
    name = f"{package}:{attribute}"
    try:
        module = importlib.import_module(package)
    except (ModuleNotFoundError, ValueError, TypeError) as error:  # absent, empty, relative
        raise UnknownModelError(f"no module {package!r} for {name!r} ({error}); {_FORMS}") from error
    factory = vars(module).get(attribute)
    if not callable(factory):
        problem = "is no function or class" if attribute in vars(module) else "does not exist"
        raise UnknownModelError(f"{name} {problem}{_nearest(attribute, list(vars(module)))}")
    try:
        made = factory(**options)
    except TypeError as error:
        raise UnknownModelError(f"{name} cannot be called: {error}") from error
    if not isinstance(made, nn.Module):
        raise UnknownModelError(f"{name} gave a {type(made).__name__}, not a torch.nn.Module")
    return made
