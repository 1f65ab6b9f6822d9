"""The shape of the source: which way imports point, what importing costs, and how long a file may be."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy

ROOT = Path(understudy.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))
LIBRARIES = {"ray", "timm", "torchvision", "transformers"}
# The rooms of the house: each imports only from itself and from those before it.
ORDER = (
    "_util", "transforms", "layers", "counting", "planning", "students", "fitting", "deploy", "distil",
    "networks", "bench", "data", "train", "results", "compressions", "comparisons",
    "experiments", "report", "cli",
)  # fmt: skip


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    """`understudy.transforms.base`, and the package itself for an `__init__`."""
    parts = [*path.relative_to(ROOT.parent).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, nodes: Iterator[ast.AST] | None = None) -> set[str]:
    """Every module that a file imports, in full; `from x import y` counts as x and as x.y."""
    package = name_of(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found: set[str] = set()
    for node in nodes if nodes is not None else ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found.add(base)
            found.update(f"{base}.{alias.name}" for alias in node.names)
    return found


def top_level(path: Path) -> Iterator[ast.AST]:
    """What runs when the file is imported: all but the bodies of functions and of `if TYPE_CHECKING`."""
    pending: list[ast.AST] = [tree(path)]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        pending.extend(ast.iter_child_nodes(node))


def ours(names: set[str]) -> set[str]:
    return {name for name in names if name.split(".")[0] == "understudy"}


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def identify(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_walk_finds_every_kind_of_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "understudy" / "transforms"
    package.mkdir(parents=True)
    file = package / "example.py"
    file.write_text(
        "from typing import TYPE_CHECKING\nimport timm.data\n"
        "from ..planning.plan import Plan\nfrom . import base\n"
        "from .. import cli\nif TYPE_CHECKING:\n    import rich\ndef late():\n    import torchvision\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path / "understudy")
    found = imports(file)
    assert {"timm.data", "understudy.planning.plan", "understudy.transforms.base", "understudy.cli"} <= found
    assert {"rich", "torchvision"} <= found
    assert {"rich", "torchvision"} & imports(file, top_level(file)) == set()


def room_of(name: str) -> str:
    """The folder, or the file at the root, that a module of ours lies in."""
    return name.split(".")[1] if "." in name else ""


def test_every_folder_has_its_place_in_the_order() -> None:
    rooms = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert rooms - {"__init__", "__main__"} <= set(ORDER)


def test_a_folder_imports_only_from_those_above_it() -> None:
    for path in FILES:
        room = room_of(name_of(path))
        if room in ("", "__main__"):  # the package itself and the command's entry stand on top of all
            continue
        above = ORDER[: ORDER.index(room) + 1]
        used = {name for name in ours(imports(path)) if room_of(name) not in {"", "__version__", *above}}
        assert not used, f"{identify(path)} imports {used}"


def test_the_built_in_networks_import_nothing_of_ours() -> None:
    home = "understudy.networks.nets"
    for path in (ROOT / "networks" / "nets").rglob("*.py"):
        outside = {name for name in ours(imports(path)) if not within(name, home)}
        assert not outside, f"{identify(path)} imports {outside}"


def test_the_report_needs_no_torch() -> None:
    for path in sorted((ROOT / "report").rglob("*.py")):
        used = imports(path)
        assert "torch" not in {name.split(".")[0] for name in used}, path
        assert {room_of(name) for name in ours(used)} <= {
            "", "_util", "report", "results", "compressions", "comparisons",
        }  # fmt: skip


def test_what_the_report_builds_on_needs_no_torch() -> None:
    for name in ("files", "quantities"):
        assert "torch" not in {name.split(".")[0] for name in imports(ROOT / "_util" / f"{name}.py")}


def test_the_report_imports_its_plotting_where_it_is_used() -> None:
    for path in sorted((ROOT / "report").rglob("*.py")):
        assert "matplotlib" not in {name.split(".")[0] for name in imports(path, top_level(path))}


def test_no_two_modules_import_each_other() -> None:
    graph = {name_of(path): ours(imports(path, top_level(path))) & set(map(name_of, FILES)) for path in FILES}
    graph.pop("understudy")  # the package itself is what they are all in
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join([*path[path.index(module) :], module])
        if module not in done:
            for other in graph.get(module, set()) - {module}:
                if not within(module, other):  # a module may import from its own package
                    visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_no_library_of_networks_is_imported_at_the_top() -> None:
    for path in FILES:
        assert not {name.split(".")[0] for name in imports(path, top_level(path))} & LIBRARIES, path


def test_nothing_of_one_system_alone_is_imported_at_the_top() -> None:
    alone = {"fcntl", "grp", "msvcrt", "posix", "pwd", "resource", "termios", "tty", "winreg"}
    for path in (*FILES, *(ROOT.parents[1] / "benchmarks").glob("*.py")):
        found = {
            alias.name
            for node in top_level(path)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
        }
        assert not found & alone, path


def test_importing_the_package_is_light_and_touches_no_gpu() -> None:
    code = (
        "import sys, json, torch\n"
        "before = set(sys.modules)\n"
        "import understudy\n"
        "print(json.dumps([sorted(set(sys.modules) - before), torch.cuda.is_initialized()]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    added, initialised = json.loads(done.stdout)
    assert not initialised
    heavy = LIBRARIES | {"rich", "typer", "click", "matplotlib", "pandas", "scipy", "sklearn", "hypothesis"}
    assert not {name.split(".")[0] for name in added} & heavy
    rooms = {room_of(name) for name in added if within(name, "understudy")}
    assert not rooms & {
        "data",
        "train",
        "results",
        "compressions",
        "comparisons",
        "experiments",
        "report",
        "cli",
    }
    assert not [name for name in added if within(name, "torch._dynamo") or within(name, "torch._inductor")]


def test_a_file_is_short() -> None:
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 350, path


def test_a_file_probes_no_attributes_prints_nothing_and_leaves_nothing_for_later() -> None:
    for path in FILES:
        calls = {
            node.func.id
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"hasattr", "print"}, path
        text = path.read_text(encoding="utf-8")
        assert not [word for word in ("TODO", "FIXME", "XXX") if word in text], path


def test_a_file_and_everything_public_in_it_says_what_it_is() -> None:
    for path in FILES:
        module = tree(path)
        assert ast.get_docstring(module), path
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{node.name} has no docstring"


def test_every_public_name_is_there_once() -> None:
    names = understudy.__all__
    assert len(names) == len(set(names))
    assert all(name in vars(understudy) for name in names)


def test_the_package_is_typed() -> None:
    assert (ROOT / "py.typed").exists()
