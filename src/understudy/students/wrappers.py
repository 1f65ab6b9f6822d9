"""Networks with wrapped parts: their own names, as if nothing were wrapped."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from understudy._util.wrappers import held, unwrapped

__all__ = ["OwnNames", "unwrapped"]


class OwnNames:
    """Path or key in a network with wrapped parts → the same in the network without the wrappers."""

    def __init__(self, model: nn.Module) -> None:
        self._held = dict(_wrapped_parts(model))

    def __call__(self, name: str) -> str:
        """`blocks.0._orig_mod.weight` → `blocks.0.weight`, where `blocks.0` is compiled."""
        path, kept = "", []
        for part in name.split("."):
            if self._held.get(path) != part:
                kept.append(part)
            path = f"{path}.{part}".lstrip(".")
        return ".".join(kept)


def _wrapped_parts(model: nn.Module) -> Iterator[tuple[str, str]]:
    for path, module in model.named_modules(remove_duplicate=False):
        name = held(module)
        if name is not None:
            yield path, name
