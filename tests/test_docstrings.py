"""The examples in docstrings are run, and every public verb has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import understudy as us

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(us.__path__, "understudy.")
    if ">>> " in Path(importlib.util.find_spec(module.name).origin).read_text(encoding="utf-8")  # type: ignore[union-attr, arg-type]
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_say_what_happens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted
    assert not outcome.failed


def test_every_public_verb_has_an_example() -> None:
    verbs = [name for name in us.__all__ if inspect.isfunction(getattr(us, name))]
    without = [name for name in verbs if ">>> " not in (inspect.getdoc(getattr(us, name)) or "")]
    assert not without
