"""write_report as a whole: its files, what is in them, and that a name cannot break out of any."""

from __future__ import annotations

import csv
import dataclasses
import html.parser
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import result, sweep, teacher, unfinished, without_matplotlib

from understudy.report import (
    planned_overview,
    published,
    published_beside,
    published_notes,
    results_overview,
    write_report,
)
from understudy.report.markdown import escape_markdown, markdown
from understudy.report.page.data import embedded_json
from understudy.report.read.groups import group_results
from understudy.report.read.tables import Entry, ReportTable, published_table
from understudy.report.spreadsheet import csv_text
from understudy.results import PlannedCosts, Result, ResultsError, Status

EVIL = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script><!--"


@pytest.fixture
def no_matplotlib() -> Iterator[None]:
    with without_matplotlib():
        yield


class Reader(html.parser.HTMLParser):
    """Tags with their attributes, and the text of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.tags[-1][0] if self.tags else "", []).append(data)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def two_networks() -> list[Result]:
    small = sweep(("hashed", "low_rank"), (12_000,), ablate=True)
    big = sweep(("hashed",), (600_000,), network="wrn_28_10", data="cifar10", prefix="big-")
    return small + big + unfinished()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(two_networks(), tmp_path_factory.mktemp("written") / "report", title="Sweep").parent


def test_a_page_tables_and_figures_are_written_for_each_network(written: Path) -> None:
    names = {path.relative_to(written).as_posix() for path in written.rglob("*.*")}
    stems = [
        f"{kind}-{problem}"
        for kind in ("error_params", "error_mult_adds", "learning_curves")
        for problem in ("wrn_10_2-digits", "wrn_28_10-cifar10")
    ]
    figures = {f"figures/{stem}.{kind}" for stem in [*stems, "ablations"] for kind in ("svg", "png")}
    assert names == {"index.html", "tables.md", "results.csv"} | figures
    text = (written / "index.html").read_text(encoding="utf-8")
    assert all(f"href='{figure}'" in text for figure in figures)
    assert text.count("class='tiles'") == 2
    assert "<select id='problem'>" in text
    assert "Published for wrn_28_10 on cifar10" in text


def test_the_same_results_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_report(two_networks(), tmp_path, title="Sweep")
    files = [path for path in written.rglob("*") if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert path.read_bytes() == (tmp_path / path.relative_to(written)).read_bytes(), path


@pytest.mark.usefixtures("no_matplotlib")
def test_what_has_not_begun_or_not_finished_still_makes_a_page(tmp_path: Path) -> None:
    assert "no cells" in write_report([], tmp_path, title="Empty").read_text(encoding="utf-8")
    page = write_report(unfinished(), tmp_path, title="Just begun").read_text(encoding="utf-8")
    for cell in unfinished()[:3]:
        assert cell.name in page
        assert cell.status.reason in page


@pytest.mark.usefixtures("no_matplotlib")
def test_a_bad_result_leaves_an_earlier_report_alone(tmp_path: Path) -> None:
    write_report([result()], tmp_path, title="Good")
    before = (tmp_path / "index.html").read_bytes()
    with pytest.raises(ResultsError, match="2 results have the name cell"):
        write_report([result(), result(seed=1)], tmp_path, title="Bad")
    assert (tmp_path / "index.html").read_bytes() == before


@pytest.mark.usefixtures("no_matplotlib")
def test_two_hundred_cells_make_a_page_below_five_megabytes(tmp_path: Path) -> None:
    results = sweep(budgets=range(4_000, 15_000, 1_000), ablate=True, epochs=600)[:200]
    assert len(results) == 200
    page = write_report(results, tmp_path, title="Two hundred")
    assert page.stat().st_size < 5 * 10**6


@pytest.mark.usefixtures("no_matplotlib")
def test_without_matplotlib_the_page_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        page = write_report(sweep(), tmp_path, title="Sweep")
    assert "understudy[plots]" in caplog.text
    assert "understudy[plots]" in page.read_text(encoding="utf-8")
    assert (tmp_path / "tables.md").exists()
    assert not (tmp_path / "figures").exists()


@pytest.mark.usefixtures("no_matplotlib")
def test_names_stay_text_in_the_page(tmp_path: Path) -> None:
    results = [
        teacher(network=EVIL, id="t"),
        result(f"{EVIL}-a", network=EVIL, structure=EVIL, teacher="t", data=CLOSING),
        result(f"{CLOSING}-b", structure=CLOSING, settings={"taps": [CLOSING]}),
        result("lost", structure=CLOSING, state="failed", reason=CLOSING),
        result("quotes' onload='alert(3)", structure="' onload='alert(3)", decay='" onload="alert(4)'),
        result("template", structure="{{script}} \\g<0> \u2028"),
    ]
    page = write_report(results, tmp_path, title=f"{EVIL}{CLOSING}").read_text(encoding="utf-8")
    reader = Reader(page)
    assert sum(tag == "script" for tag, _ in reader.tags) == 2
    assert not [tag for tag, _ in reader.tags if tag in ("img", "iframe", "link", "object")]
    assert not [
        attributes for _, attributes in reader.tags if any(key.startswith("on") for key in attributes)
    ]
    assert reader.texts["title"][0] == f"{EVIL}{CLOSING}"
    assert {group["label"] for group in data_of(page)["groups"]} >= {f"{EVIL} 24k", f"{CLOSING} 24k"}
    assert "\u2028" not in page.partition('id="data">')[2].partition("</script>")[0]


def test_embedded_json_has_no_way_out() -> None:
    text = embedded_json({"a": f"{CLOSING}]]> \u2028\u2029 &amp;"})
    assert not re.search(r"[<>&\u2028\u2029]", text)
    assert json.loads(text) == {"a": f"{CLOSING}]]> \u2028\u2029 &amp;"}


@pytest.mark.usefixtures("no_matplotlib")
def test_the_page_may_not_use_the_network(tmp_path: Path) -> None:
    page = write_report(sweep(), tmp_path, title="Sweep").read_text(encoding="utf-8")
    reader = Reader(page)
    (policy,) = [tag["content"] for name, tag in reader.tags if name == "meta" and "http-equiv" in tag]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    outside = [value for _, tag in reader.tags for key, value in tag.items() if key in ("src", "href")]
    assert all(value and not value.startswith(("http", "//", "data")) for value in outside)


@pytest.mark.usefixtures("no_matplotlib")
def test_a_long_curve_is_thinned_to_its_last_point(tmp_path: Path) -> None:
    page = write_report(sweep(epochs=601), tmp_path, title="Long").read_text(encoding="utf-8")
    (curve,) = data_of(page)["groups"][0]["curves"]
    assert curve["epoch"][-1] == 601
    assert 100 <= len(curve["epoch"]) == len(curve["test"]) <= 120


@pytest.mark.usefixtures("no_matplotlib")
def test_shared_settings_are_embedded_once(tmp_path: Path) -> None:
    data = data_of(write_report(sweep(), tmp_path, title="Sweep").read_text(encoding="utf-8"))
    assert data["shared"]["epochs"] == "12"
    assert all("epochs" not in group["settings"] for group in data["groups"])
    assert {group["settings"]["request.budget"] for group in data["groups"]} == {
        "null",
        '{"metric": "params", "amount": 12000.0}',
        '{"metric": "params", "amount": 24000.0}',
    }


def test_markdown_keeps_a_name_in_its_cell() -> None:
    table = ReportTable("t", ("name", ">n"), ((Entry("a|b\n`c` <b> [x](y) \\ *d*"), Entry("1", 1)),))
    assert markdown(table).splitlines() == [
        "| name | n |",
        "| --- | ---: |",
        "| a\\|b \\`c\\` &lt;b&gt; \\[x\\](y) \\\\ \\*d\\* | 1 |",
    ]
    assert escape_markdown("low_rank") == "low_rank"


@pytest.mark.usefixtures("no_matplotlib")
def test_the_markdown_has_aggregates_ablations_failures_and_cells(tmp_path: Path) -> None:
    write_report(sweep(seeds=(0, 1, 2), ablate=True) + unfinished(), tmp_path, title="A | B")
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert text.startswith("# A \\| B\n")
    for heading in ("Seeds together", "With and without attention transfer", "With and without CRS decay"):
        assert f"## {heading}\n" in text
    assert re.search(r"\| \d+\.\d\d ± \d+\.\d\d \(n=3\) \|", text)
    assert "| unreachable-cell | unreachable | acdc on wrn_10_2: 2,000 parameters are below" in text
    assert text.count("\n| low_rank-12k-at-crs-seed-") == 3


def test_a_spreadsheet_runs_no_name() -> None:
    texts = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "\x01=1", "\x00\x1b \n@A1", "plain-1"]
    failed = unfinished()[2]
    told = [dataclasses.replace(failed, status=Status("unreachable", text)) for text in texts]
    rows = list(csv.DictReader(io.StringIO(csv_text([*told, result("cell")]))))
    reasons = [row["reason"] for row in rows]
    assert reasons[:4] == [f"'{text}" for text in texts[:4]]
    assert all(re.fullmatch(r"' *[=@].*", reason) for reason in reasons[4:8])
    assert reasons[8] == "plain-1"
    assert (rows[-1]["params"], rows[-1]["top1"]) == ("23990", "4.8")


def test_unknown_values_are_empty_in_the_spreadsheet() -> None:
    row = next(csv.DictReader(io.StringIO(csv_text(unfinished()[2:3]))))
    assert (row["params"], row["top1"], row["status"]) == ("", "", "unreachable")


def test_published_numbers_stand_beside_ours() -> None:
    results = sweep(
        ("low_rank", "hashed"), (4_350_000, 17_600_000), network="wrn_50_2", data="imagenet", ablate=True
    )
    groups = group_results(results)
    table = published_table(groups[0].problem, groups)
    rows = {row[0].text: [entry.text for entry in row[1:]] for row in table.rows}
    assert rows["RF 4.35M"][:4] == ["paper", "4.35M", "530.0M", "39.8"]
    matched = next(cell for cell in results if cell.name == "low_rank-4.35M-at-crs-seed-0")
    assert rows["RF 4.35M"][6] == f"{matched.top1:.1f}"
    assert rows["WRN-50-2"][6] == "2.2"
    assert rows["MobileNet"][4:] == ["–", "–", "–"]
    assert rows["Tensor-Train 4.34M"][4:] == ["–", "–", "–"]


def test_published_points_are_only_given_for_the_papers_networks_and_data() -> None:
    assert len(published("wrn_50_2", "imagenet")) == 17
    assert published("wrn_28_10", "cifar10")[0].top1 == 3.2
    assert published("darts", "cifar10")[0].top1 == 2.83
    assert published("wrn_28_10", "digits") == ()
    assert published_notes("wrn_28_10", "cifar10")
    assert published_notes("wrn_10_2", "digits") == ()


def test_a_published_point_stands_beside_the_same_substitution_of_about_its_size() -> None:
    def beside(structure: str, params: int, **changes: Any) -> str:
        planned = PlannedCosts(params, 1, 1, 1)
        facts = {"network": "wrn_50_2", "data": "imagenet", "state": "waiting", "planned": planned, **changes}
        point = published_beside(result(structure=structure, **facts))
        return point.label if point else ""

    assert beside("shuffle", 6_037_672) == "ShuffleNet 6.0M"
    assert beside("shuffle", 4_350_000) == ""
    assert beside("low_rank", 6_037_672) == ""
    assert beside("Linear=shuffle, *.conv2=low_rank", 6_037_672) == ""
    assert beside("", 68_000_000, role="teacher") == "WRN-50-2"
    assert beside("", 68_000_000, role="baseline") == ""
    assert beside("shuffle", 6_037_672, state="unreachable", planned=None) == ""


def test_a_sweep_at_a_glance() -> None:
    results = [teacher(), result("cell"), *unfinished()[:3]]
    rows = {row[0]: row[1:] for row in results_overview("x", results).rows}
    assert rows["cell"] == ("23,990", "7.9 %", "1.23M", "101.2 kB", "4.80 %", "1,234", "1.90", "")
    assert rows["failed-cell"] == (*[""] * 7, "failed: RuntimeError: out of memory")
    assert "batches of 64" in results_overview("x", results).caption
    assert results_overview("x", unfinished()).caption == ""
    planned = planned_overview("x", results)
    assert planned.title == "x: 5 cells"
    assert planned.rows[1][1:5] == ("23,990", "1.23M", "1.20M", "2.00M")
    assert planned.rows[-1][-1].startswith("unreachable: acdc on wrn_10_2")


def test_every_network_of_a_sweep_is_held_against_its_own_teacher() -> None:
    networks = ("wrn_10_2", "wrn_28_10")
    results = [
        made
        for network in networks
        for made in sweep(("hashed",), (12_000,), network=network, prefix=network)
    ]
    rows = results_overview("x", results).rows
    assert [row[2] for row in rows if "teacher" in row[0]] == ["100.0 %", "100.0 %"]
    assert [row[2] for row in rows if "hashed" in row[0]] == ["3.9 %", "0.032 %"]
