"""What the README shows is what happens: its example is run, its tables are those of committed results."""

import json
import re
from pathlib import Path

import pytest

import demo
import performance
from command import Run
from compress_page import rows
from understudy.bench.figure import figure
from understudy.report.read.comparison import claims

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, after: str = "") -> str:
    match = re.compile(rf"```{language}\n(.*?)```", re.DOTALL).search(README, README.index(after))
    assert match is not None
    return match[1]


def result(name: str) -> dict[str, object]:
    loaded = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.untraced
def test_the_example_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(block("python"), {"__name__": "__main__"})
    assert capsys.readouterr().out == block("text")
    assert (tmp_path / "student.safetensors").stat().st_size == 4_901_372


@pytest.mark.untraced
def test_the_plan_prints_what_the_readme_shows(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = run("plan", "wrn_50_2", "--all", "--params", "17.6M").out
    printed = [line.split() for line in out.splitlines()]  # a longer name widens its column
    for line in block("text", after="--params 17.6M` prints").splitlines():
        assert line.split() in printed  # what else is printed are transforms that came later


def test_the_table_of_transforms_is_the_one_that_the_command_prints(run: Run) -> None:
    assert run("transforms", "--markdown").out in README


def test_the_table_of_the_demo_is_that_of_the_committed_result() -> None:
    runs, seconds = demo.committed()
    (page,) = demo.pages()
    text = page.read_text(encoding="utf-8")
    assert text == demo.filled(text, runs)
    assert not runs or len(runs) >= 3
    assert max(seconds, default=0) < 180
    for run in runs:
        assert all(claim.is_held for claim in claims(run))


def test_the_table_of_speeds_is_that_of_the_committed_result() -> None:
    cases = result("layers")["cases"]
    assert isinstance(cases, list)
    head = re.search(r"^\| channels, image \| layout \| (.*) \|$", README, re.M)
    assert head is not None
    names = [name.split("`")[1] if name[0] == "`" else "grouped" for name in head[1].split(" | ")]
    for case in cases:
        layers = case["layers"]
        cells = [
            f"{layers[name]['forward_speedup']:.1f} / {layers[name]['step_speedup']:.1f}" for name in names
        ]
        layout = case["layout"].replace("_", " ")
        row = f"| {case['channels']}, {case['side']}×{case['side']} | {layout} | {' | '.join(cells)} |"
        assert row in README


def test_the_tables_of_compressed_networks_are_those_of_the_committed_result() -> None:
    cells = result("compress")["cells"]
    assert isinstance(cells, list)
    measured = rows(cells)
    assert measured
    page = (ROOT / "docs" / "compress.md").read_text(encoding="utf-8")
    for line in measured:
        assert line in page
    for line in README.splitlines():
        if re.match(r"\| (resnet|wrn|minilm|efficientnet)\w* \| `\w+` \| \d+ % of the ", line):
            assert line in measured


def test_the_tables_of_performance_are_those_of_the_committed_result() -> None:
    page = performance.PAGE.read_text(encoding="utf-8")
    bench = performance.committed()
    assert page == performance.filled(page, bench)
    if bench is not None:
        assert performance.FIGURE.read_text(encoding="utf-8") == figure(bench)


def test_the_floor_of_the_coverage_is_the_one_that_make_test_enforces() -> None:
    floor = re.search(r"^fail_under = ([\d.]+)$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert floor is not None
    assert re.findall(r"coverage at least ([\d.]+) %", README) == [floor[1]]


def test_no_page_holds_a_placeholder() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        assert not re.search(r"@[A-Z]+@", page.read_text(encoding="utf-8")), page
