"""The page in a real browser: what a reader clicks does what it says, and nothing goes wrong or out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from synthetic import result, sweep, teacher, unfinished, without_matplotlib
from test_compression_page import EVIL, compressed, quality, student

from understudy.compressions import Footprint, Recovery
from understudy.experiments.curves import hash_buckets, width_mult_adds
from understudy.report import write_compression, write_report
from understudy.results import Curves, KnobParams, Result

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path: apt-get install chromium"),
    pytest.mark.usefixtures("no_figures"),
]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
POINT = "#chart .point[data-index]"
# on the front, so that nothing lies above it
STUDENT = f"{POINT}.best:not([aria-label^='teacher'], [aria-label^='baseline'])"
METHOD = Curves(
    KnobParams(
        "wrn_10_2",
        dense=300_000,
        scale=(0.0, 0.5, 1.0),
        transforms={"low_rank": (7_000, 30_000, 60_000), "new": (8_000, 20_000, 40_000)},
        support=(8_000, 40_000),
    ),
    hash_buckets(32, 32),
    width_mult_adds(),
)


@pytest.fixture(scope="module")
def no_figures() -> Iterator[None]:
    """Pages alone: the figures would take most of the time."""
    with without_matplotlib():
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is in the dev extra")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, no_figures: None) -> Path:  # noqa: ARG001
    results = sweep(seeds=(0, 1), ablate=True) + unfinished()
    return write_report(results, tmp_path_factory.mktemp("report"), title="A sweep", curves=METHOD)


class Visit:
    """An open page, with everything that it logged, threw or asked for."""

    def __init__(self, browser: Browser, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            has_touch=width < 500,
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.address = path.as_uri()

    def places(self) -> dict[str, str]:
        """Where each of our points is drawn."""
        found: list[list[str]] = self.page.locator(POINT).evaluate_all(
            "points => points.map(point => [point.dataset.index, point.getAttribute('transform')])"
        )
        return {str(index): place for index, place in found}


@pytest.fixture
def visit(browser: Browser, report: Path) -> Iterator[Visit]:
    """The page on a desk; afterwards nothing may have been logged, thrown or fetched."""
    opened = Visit(browser, report)
    yield opened
    opened.context.close()
    assert opened.problems == []
    assert opened.requests == [opened.address]


def across(places: dict[str, str]) -> dict[str, float]:
    return {index: float(re.findall(r"[\d.]+", place)[0]) for index, place in places.items()}


def test_every_setting_with_an_error_is_a_point(visit: Visit) -> None:
    assert len(visit.places()) == 1 + 2 + 2 * 6 * 3  # the teacher, two baselines, the students


@pytest.mark.parametrize("axis", ["Mult-adds", "Bytes", "Latency"])
def test_a_click_on_an_axis_moves_the_points(visit: Visit, axis: str) -> None:
    before = visit.places()
    visit.page.get_by_label(axis, exact=True).check()
    after = visit.places()
    assert after.keys() == before.keys()
    assert sum(after[index] != before[index] for index in before) > len(before) // 2
    words = {"Mult-adds": "mult-adds", "Bytes": "bytes", "Latency": "latency"}
    assert words[axis] in visit.page.locator("#chart").inner_text()


def test_log_and_linear_place_points_in_the_same_order(visit: Visit) -> None:
    before = across(visit.places())
    visit.page.get_by_label("Linear").check()
    after = across(visit.places())
    assert sorted(before, key=lambda index: before[index]) == sorted(
        after, key=lambda index: (after[index], before[index])
    )
    assert before != after


def test_the_legend_hides_points_and_rows_and_brings_them_back(visit: Visit) -> None:
    before = visit.places()
    button = visit.page.locator("#legend button[data-key='hashed']")
    rows = visit.page.locator("#table-results tr[data-key='hashed']")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert len(visit.places()) == len(before) - 6
    assert not rows.first.is_visible()
    button.click()
    assert visit.places() == before
    assert rows.first.is_visible()


def test_hiding_everything_says_so(visit: Visit) -> None:
    for button in visit.page.locator("#legend button").all():
        button.click()
    assert "Nothing to draw" in visit.page.locator("#chart").inner_text()


def test_hovering_shows_the_configuration(visit: Visit) -> None:
    tooltip = visit.page.locator("#tooltip")
    assert not tooltip.is_visible()
    visit.page.locator(STUDENT).first.hover()
    assert tooltip.is_visible()
    text = tooltip.inner_text()
    for word in ("top-1 error", "parameters", "mult-adds", "network", "data", "budget", "seeds", "wrn_10_2"):
        assert word in text
    visit.page.mouse.move(2, 2)
    assert not tooltip.is_visible()


def test_the_keyboard_reaches_every_point(visit: Visit) -> None:
    tooltip = visit.page.locator("#tooltip")
    visit.page.locator(f"{POINT}[tabindex='0']").focus()
    assert tooltip.is_visible()
    seen = {tooltip.inner_text()}
    for _ in range(len(visit.places()) - 1):
        visit.page.keyboard.press("ArrowRight")
        seen.add(tooltip.inner_text())
    assert len(seen) == len(visit.places())
    visit.page.keyboard.press("Enter")
    assert visit.page.locator("#detail").is_visible()
    visit.page.keyboard.press("Escape")
    assert not tooltip.is_visible()


def test_a_click_shows_learning_curve_and_settings(visit: Visit) -> None:
    visit.page.locator(STUDENT).first.click()
    detail = visit.page.locator("#detail")
    assert detail.locator("svg path.line").count() >= 3
    detail.get_by_text("All settings").click()
    assert "learning_rate" in detail.inner_text()
    detail.get_by_role("button", name="Close").click()
    assert not detail.is_visible()


@pytest.mark.parametrize("table", ["table-results", "table-failures", "table-ablation-0"])
def test_tables_sort_both_ways_by_a_click(visit: Visit, table: str) -> None:
    column = {"table-results": "parameters", "table-failures": "cell", "table-ablation-0": "difference"}[
        table
    ]
    heads = visit.page.locator(f"#{table} th").all_inner_texts()
    number = [head.strip("↕ ") for head in heads].index(column)
    head = visit.page.locator(f"#{table} th").nth(number)
    sortable = "cell => cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value)"
    cells = f"cells => cells.map({sortable})"
    entries = visit.page.locator(f"#{table} tbody tr td:nth-child({number + 1})")
    for order, reverse in (("ascending", False), ("descending", True)):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == order
        values = entries.evaluate_all(cells)
        known = [value for value in values if value != "–"]
        assert known == sorted(known, reverse=reverse)
        assert values[: len(known)] == known  # what is unknown comes last
        assert len(known) > 1


def test_the_theme_can_be_changed(visit: Visit) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = visit.page.evaluate(colour)
    button = visit.page.locator("#theme")
    button.click()
    assert visit.page.evaluate(colour) != light
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert visit.page.evaluate(colour) == light


def test_ticks_have_the_digits_that_they_need(visit: Visit) -> None:
    source = (resources.files("understudy.report") / "page" / "draw.js").read_text(encoding="utf-8")

    def shown(*ticks: float) -> object:
        return visit.page.evaluate(f"ticks => {{ {source}\nreturn tickTexts(ticks, '%'); }}", list(ticks))

    assert shown(98.9, 98.95, 99.0, 99.05) == ["98.9 %", "98.95 %", "99 %", "99.05 %"]
    assert shown(0, 0.1 + 0.2, 0.6) == ["0 %", "0.3 %", "0.6 %"]


def test_labels_in_the_chart_do_not_overlap(visit: Visit) -> None:
    boxes = visit.page.locator("#chart text.label").evaluate_all(
        "labels => labels.map(label => label.getBBox())"
        ".map(box => [box.x, box.y, box.x + box.width, box.y + box.height])"
    )
    assert len(boxes) >= 2
    for number, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[number + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_the_method_is_drawn_in_three_charts(visit: Visit) -> None:
    assert visit.page.locator("#method-charts figure svg[role='img']").count() == 3


def test_failures_are_shown_with_their_reasons(visit: Visit) -> None:
    text = visit.page.locator("#failures").inner_text()
    for cell in unfinished()[:3]:
        assert cell.name in text
        assert cell.status.reason in text


def test_a_dark_system_gets_a_dark_page(browser: Browser, report: Path) -> None:
    opened = Visit(browser, report, scheme="dark")
    red, green, blue = re.findall(
        r"\d+", opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    )
    opened.context.close()
    assert max(int(red), int(green), int(blue)) < 60
    assert opened.problems == []


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, report: Path) -> None:
    opened = Visit(browser, report, width=375)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 375
    opened.page.locator(STUDENT).first.tap()
    assert opened.page.locator("#tooltip").is_visible()
    assert opened.page.locator("#detail").is_visible()
    opened.page.get_by_text("Every cell (").click()
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 375
    box = opened.page.locator("#tooltip").bounding_box()
    assert box is None or (box["x"] >= 0 and box["x"] + box["width"] <= 375)
    opened.context.close()
    assert opened.problems == []


def test_names_do_not_run_in_the_page(browser: Browser, tmp_path: Path) -> None:
    evil, closing = "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>"
    results = [
        teacher(network=evil, id="t"),
        result(evil, network=evil, structure=evil, teacher="t", settings={"taps": [evil]}),
        result(closing, network=evil, structure=closing, teacher="t", state="failed", reason=closing),
        result("quotes", network=evil, structure="'\"><b onmouseover=alert(3)>", teacher="t"),
    ]
    opened = Visit(browser, write_report(results, tmp_path, title=closing))
    for point in opened.page.locator(POINT).all():
        point.click(force=True)
        assert opened.page.locator("#detail h3").first.inner_text()
    for button in opened.page.locator("#legend button").all():
        button.click()
    assert opened.page.locator("#legend button").count() == 3
    assert opened.page.locator("img, b").count() == 0
    assert opened.page.locator("h1").inner_text() == closing
    opened.context.close()
    assert opened.problems == []
    assert opened.requests == [opened.address]


def test_two_networks_are_shown_one_at_a_time(browser: Browser, tmp_path: Path) -> None:
    big = sweep(("hashed",), (4_350_000,), network="wrn_50_2", data="imagenet", prefix="big-")
    results = sweep(("hashed", "acdc")) + big
    opened = Visit(browser, write_report(results, tmp_path, title="Two"))
    before = opened.places()
    assert opened.page.locator("#chart .published-point").count() == 0
    opened.page.get_by_label("Network and data").select_option("wrn_50_2 on imagenet")
    assert opened.places().keys().isdisjoint(before)
    assert opened.page.locator("#chart .published-point").count() == 16  # those with parameters
    opened.page.locator("#legend button[data-key='published literature']").click()
    assert opened.page.locator("#chart .published-point").count() == 9
    opened.page.get_by_label("Bytes", exact=True).check()
    assert opened.page.locator("#chart .published-point").count() == 0
    opened.context.close()
    assert opened.problems == []


def test_a_sweep_with_nothing_finished_is_no_error(browser: Browser, tmp_path: Path) -> None:
    for name, results in (("empty", list[Result]()), ("begun", unfinished())):
        opened = Visit(browser, write_report(results, tmp_path / name, title=name))
        assert opened.page.locator("h1").inner_text() == name
        assert opened.page.locator(POINT).count() == 0
        opened.context.close()
        assert opened.problems == []


def test_the_page_of_a_compression_answers_to_clicks(browser: Browser, tmp_path: Path) -> None:
    recovered = Recovery(3, 1e-3, 60.0, quality(91.0, 99.0), True)
    small = Footprint(300, 2_000, 1_900, 1_500)
    students = (
        student("low_rank-50", recovery=recovered),
        student("low_rank-30", costs=small, quality=quality(70.0, 75.0), recovery=recovered),
        student(EVIL, transform="hashed", quality=quality(80.0, 85.0), recovery=None),
    )
    write_compression(compressed(students=students), tmp_path)
    opened = Visit(browser, tmp_path / "index.html")
    page = opened.page
    assert page.locator(POINT).count() == 5  # two of them before and after
    before = opened.places()
    for choice, words in (("Latency", "latency"), ("Agreement", "answers as the original's")):
        page.get_by_label(choice, exact=True).check()
        assert words in page.locator("#chart").inner_text()
    assert opened.places() != before
    page.locator("#legend button[data-key='low_rank']").click()
    assert page.locator(POINT).count() == 1
    page.locator(POINT).first.click()
    assert page.locator(".student:visible h3").inner_text() == EVIL
    page.locator("#student").select_option("1")
    assert page.locator(".student:visible h3").inner_text() == "low_rank-30"
    opened.context.close()
    assert opened.problems == []
    assert opened.requests == [opened.address]
