"""Every block of code on a page runs, every command line is one that the command takes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from page_blocks import PAGES, ROOT, Block, blocks, command_lines, spans
from small_network import make
from torch import Tensor

import understudy as us
import understudy.experiments
from understudy.cli import app
from understudy.experiments import Grid, grid_names, make_grid
from understudy.train import recipe_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Names = dict[str, Any]
COMMAND: Any = typer.main.get_command(app)
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def inputs(batches: int, size: int = 16) -> list[Tensor]:
    return list(torch.randn(batches, 8, 3, size, size, generator=torch.Generator().manual_seed(0)))


def trained() -> Names:
    """A network, and unlabelled inputs."""
    return {"model": make(), "batches": inputs(2)}


def shipped() -> Names:
    """A student beside its original, to be exported."""
    model = make()
    plan = us.plan(model, "low_rank", ratio=0.8)
    batches = inputs(2, 32)
    return {"model": model, "student": us.substitute(model, plan), "x": batches[0], "batches": batches}


def taught() -> Names:
    """A teacher, a student, and labelled batches."""
    teacher = us.create_model("wrn_10_1")
    [images] = inputs(1)
    labels = torch.arange(len(images)) % 10
    return {
        "teacher": teacher,
        "student": us.substitute(teacher, us.plan(teacher, "shuffle", scale=0.5), init="fresh"),
        "loader": [(images, labels)],
        "test_loader": [(images, labels)],
        "images": images,
        "labels": labels,
        "x": images[:1],
    }


def pretrained() -> Names:
    """A small network of transformers, and a student of it."""
    transformers = pytest.importorskip("transformers", reason="needs the extra text")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=20, **sizes))
    return {"us": us, "model": model, "student": us.substitute(model, us.plan(model, "low_rank", ratio=0.9))}


def small_grid(name: str) -> Grid:
    """In the place of a shipped grid: one epoch of a teacher and a student."""
    assert name in grid_names()
    table = {
        "recipe": "demo",
        "networks": "wrn_10_1",
        "settings": {"epochs": 1, "train_images": 64},
        "students": [{"transforms": "low_rank", "ratio": 0.5}],
    }
    return make_grid("small", table)


GIVEN: dict[str, Callable[[], Names]] = {  # what a page takes for granted
    "docs/compress.md": trained,
    "docs/deployment.md": shipped,
    "docs/training.md": taught,
    "docs/compatibility.md": pretrained,
}
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_python_of_a_page_runs_and_prints_what_is_shown(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(understudy.experiments, "load_grid", small_grid)
    names = GIVEN[page]() if page in GIVEN else {}
    for block in blocks(page):
        if block.language == "python":
            run(block, names)
            printed = capsys.readouterr().out
            assert block.shown is None or printed == block.shown


def run(block: Block, names: Names) -> None:
    """Run a block among the names of those before it; a traceback tells the line of the page."""
    lines = "\n" * (block.line - 1) + block.text
    exec(compile(lines, str(ROOT / block.page), "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_the_command_lines_of_a_page_are_legal(page: str) -> None:
    for line in command_lines(page):
        check(line)
    for span in spans(page):
        if re.match(r"(understudy|make) [a-z]", span):
            check(span.replace("…", ""), whole=False)


def check(line: str, *, whole: bool = True) -> None:
    """Have a command line read by who would run it; of one that is not whole, arguments may be missing."""
    program, *arguments = shlex.split(line)
    if program == "make":
        for target in arguments:
            assert "=" in target or re.search(rf"^{target}:", MAKEFILE, re.M), line
    elif program == "pip":
        extras = ",".join(re.findall(r"\[(.*)\]", line)).split(",")
        assert {*extras} <= {"", *PYPROJECT["project"]["optional-dependencies"]}
    elif program in ("python", "torchrun"):
        if "understudy" in arguments:
            understood(arguments[arguments.index("understudy") + 1 :], whole=whole)
        else:
            assert (ROOT / arguments[0]).is_file(), line
    else:
        assert program == "understudy", line
        understood(arguments, whole=whole)


def understood(arguments: list[str], *, whole: bool) -> None:
    """Arguments as `understudy` parses them, without running anything; what is shipped by name exists."""
    context = COMMAND.make_context("understudy", [*arguments])
    name, command, rest = COMMAND.resolve_command(context, arguments)
    given = command.make_context(name, [*rest], parent=context, resilient_parsing=not whole).params
    shipped_names = {"train": ("recipe", recipe_names()), "sweep": ("grid", grid_names())}
    if name in shipped_names and whole:
        key, legal = shipped_names[name]
        assert str(given[key]) in legal


@pytest.mark.parametrize(
    "line",
    [
        "understudy plann wrn_28_10",
        "understudy plan wrn_28_10 --parameters 3",
        "understudy plan",
        "understudy plan wrn_28_10 --spatial odd",
        "understudy train no_such_recipe",
        "torchrun -m understudy train wrn_50_2_imagenet --odd",
        "make no_such_target",
        "pip install '.[no_such_extra]'",
        "python benchmarks/no_such_file.py",
        "rm -rf /",
    ],
)
def test_a_command_line_that_nothing_takes_is_found(line: str) -> None:
    with pytest.raises((AssertionError, typer.exceptions.TyperException)):
        check(line)


def test_the_grid_of_the_documentation_is_a_grid() -> None:
    [grid] = [block for block in blocks("docs/experiments.md") if block.language == "toml"]
    made = make_grid("documented", tomllib.loads(grid.text))
    assert {cell.role for cell in made.cells} == {"teacher", "student", "baseline"}


def test_every_block_says_a_language_that_is_checked() -> None:
    known = {"": "command lines", "sh": "command lines", "python": "run", "text": "output", "toml": "read"}
    for page in PAGES:
        for block in blocks(page):
            assert block.language in known, f"{page}:{block.line}"
            if block.language == "toml":
                tomllib.loads(block.text)
