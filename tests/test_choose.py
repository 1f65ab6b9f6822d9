"""docs/choose.md says what was measured: its tables and figures are those of the committed result."""

import json
import re
from pathlib import Path

import families
import families_page

ROOT = Path(__file__).parent.parent
PAGE = families_page.PAGE.read_text(encoding="utf-8")
RESULT = ROOT / "benchmarks" / "results" / "families.json"
CELLS = json.loads(RESULT.read_text(encoding="utf-8"))["cells"]


def test_what_was_measured_was_measured_once_on_every_layer() -> None:
    keys = [families.key(cell) for cell in CELLS]
    assert len({*keys}) == len(keys)
    wanted = {families.key(vars(cell)) for cell in families.cells()}
    names = {*families_page.families(CELLS)}  # one that came later need not be here
    assert {*keys} == {key for key in wanted if key[2] in names}


def test_the_tables_are_those_of_the_committed_result() -> None:
    for name, lines in families_page.tables(CELLS).items():
        assert f"<!-- {name} -->\n" + "\n".join(lines) + "\n<!-- end -->" in PAGE, name


def test_the_families_that_the_page_names_are_all_measured() -> None:
    named = {*re.findall(r"`([a-z_]+)`", PAGE)}
    assert named >= {*families_page.families(CELLS)}


def test_the_figures_are_there_and_shown() -> None:
    shown = {*re.findall(r"\]\((figures/.*?)\)", PAGE)}
    assert shown == {f"figures/{file.name}" for file in families_page.FIGURES.glob("families_*")}


def test_a_fit_to_data_never_loses_more_of_the_outputs_than_a_plain_one() -> None:
    for cell in CELLS:
        if "refused" not in cell:
            assert cell["aware"]["outputs"] <= cell["plain"]["outputs"] + 1e-4, cell
