"""The examples in docstrings are run, and every public name has one."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import understudy as us

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(us.__path__, "understudy.")
    if ">>> " in Path(importlib.util.find_spec(module.name).origin).read_text(encoding="utf-8")  # type: ignore[union-attr, arg-type]
)
PAGE = Path(__file__).parents[1] / "docs" / "modules.md"
NAMES = [f"understudy.{name}" for name in us.__all__ if name != "__version__"]
NAMES += re.findall(r"^::: (\S+)$", PAGE.read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_say_what_happens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "understudy.experiments.ray_engine":
        pytest.importorskip("ray", reason="needs the extra 'ray'")
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.attempted
    assert not outcome.failed


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_has_an_example(name: str) -> None:
    module, _, own = name.rpartition(".")
    assert ">>> " in (vars(importlib.import_module(module))[own].__doc__ or "")
