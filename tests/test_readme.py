"""The tables of the README and the docs are those of committed results."""

import json
import re
from pathlib import Path

import pytest

import answers
import compress_page
import curve
import demo
import eight_bits
import file_sizes
import performance
import readme_page
from command import Run
from understudy.bench.figure import figure
from understudy.report.read.comparison import POINTS, claims

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def docs(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def result(name: str) -> dict[str, object]:
    loaded = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_the_readme_is_one_screen_with_the_results_that_were_measured() -> None:
    assert readme_page.filled(README) == README  # python benchmarks/readme_page.py
    assert README.count("\n") <= 60


def test_the_plan_prints_what_the_docs_show(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = re.search(r"--params 17.6M` prints:\n\n```text\n(.*?)```", docs("budgets"), re.DOTALL)
    assert shown is not None
    out = run("plan", "wrn_50_2", "--all", "--params", "17.6M").out
    printed = [line.split() for line in out.splitlines()]  # a longer name widens its column
    for line in shown[1].splitlines():
        assert line.split() in printed  # what else is printed are transforms that came later


def test_the_table_of_transforms_is_the_one_that_the_command_prints(run: Run) -> None:
    assert run("transforms", "--markdown").out in docs("transforms")


def test_the_table_of_the_demo_is_that_of_the_committed_result() -> None:
    runs, seconds = demo.committed()
    (page,) = demo.pages()
    text = page.read_text(encoding="utf-8")
    assert text == demo.filled(text, runs)
    assert not runs or len(runs) >= 3
    assert max(seconds, default=0) < 180
    for run in runs:  # of one seed the error is a matter of a few images: it is held over all
        assert all(claim.is_held for claim in claims(run) if "error" not in claim.what)
    lost = [run.of("student").error - run.of("original").error for run in runs]
    assert sum(lost) <= POINTS * len(lost)


def test_the_table_of_compressed_networks_is_that_of_the_committed_result() -> None:
    cells = result("compress")["cells"]
    assert isinstance(cells, list)
    assert cells
    assert compress_page.HEAD + "\n".join(compress_page.rows(cells)) + "\n\n" in docs("compress")


def test_the_curves_are_those_of_the_committed_result() -> None:
    assert curve.filled(docs("compress"), curve.committed()) == docs("compress")


def test_the_table_of_eight_bits_is_that_of_the_committed_result() -> None:
    assert eight_bits.filled(docs("deployment"), eight_bits.committed()) == docs("deployment")


def test_the_table_of_file_sizes_is_that_of_the_committed_result_and_onnx_keeps_its_promise() -> None:
    files = file_sizes.committed()
    assert file_sizes.filled(docs("deployment"), files) == docs("deployment")
    assert max(one["onnx"] / file_sizes.bound(one["params"]) for one in files) <= 1


def test_the_steps_with_answers_that_are_kept_are_those_of_the_committed_result() -> None:
    assert answers.filled(docs("experiments"), answers.committed()) == docs("experiments")


def test_the_tables_of_performance_are_those_of_the_committed_result() -> None:
    page = performance.PAGE.read_text(encoding="utf-8")
    bench = performance.committed()
    assert page == performance.filled(page, bench)
    if bench is not None:
        assert performance.FIGURE.read_text(encoding="utf-8") == figure(bench)


def test_the_floor_of_the_coverage_is_the_one_that_make_coverage_enforces() -> None:
    floor = re.search(r"^fail_under = ([\d.]+)$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert floor is not None
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.findall(r"coverage at least ([\d.]+) %", contributing) == [floor[1]]


def test_no_page_holds_a_placeholder() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"@[A-Z]+@", page.read_text(encoding="utf-8")), page
