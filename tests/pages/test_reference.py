"""The reference and llms.txt name everything that is public, and nothing else."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from page_blocks import PAGES

import llms
import understudy as us

MODULES = {
    "docs/reference.md": ["understudy"],
    "docs/modules.md": ["understudy.train", "understudy.experiments", "understudy.data", "understudy.report"],
}


@pytest.mark.parametrize("page", MODULES)
def test_a_page_of_the_reference_has_every_public_name_once(page: str) -> None:
    shown = re.findall(r"^::: (\S+)$", PAGES[page], re.M)
    public = [
        f"{module}.{name}"
        for module in MODULES[page]
        for name in importlib.import_module(module).__all__
        if name != "__version__"
    ]
    assert sorted(shown) == sorted(public)


def test_llms_txt_is_what_the_library_says_of_itself() -> None:
    assert llms.FILE.read_text(encoding="utf-8") == llms.text()  # python docs/_site/llms.py


def test_the_example_of_llms_txt_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", llms.text(), re.DOTALL)
    exec(example, {})
    assert (tmp_path / "student.safetensors").is_file()


def test_llms_txt_tells_calls_as_they_are_written() -> None:
    text = llms.text()
    assert "- `us.cost(model: nn.Module, example: Example, *, meta: bool = True)`: Count what" in text
    assert "- `us.BudgetError`: The budget lies below" in text
    assert all(f"- `us.{name}" in text for name in us.__all__ if name != "__version__")
    assert " at 0x" not in text
