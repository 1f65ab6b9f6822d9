"""Figures: labels that can be read, the same look for a transform everywhere, all kinds of names."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import TRANSFORMS, result, sweep, teacher

from understudy._util.names import file_name
from understudy.experiments.curves import curves, hash_buckets, sweep_curves, width_mult_adds
from understudy.report.figures import canvas
from understudy.report.figures.canvas import drawing, label_points, new_figure, tick_text
from understudy.report.figures.style import COLOURS, MARKERS, report_styles, styles
from understudy.report.figures.sweep_figures import (
    MOST_BARS,
    ablation_figure,
    error_figure,
    learning_figure,
    write_figures,
)
from understudy.report.read.groups import ablations, group_results
from understudy.results import Curves
from understudy.transforms import known_transforms

curves_module = importlib.import_module("understudy.experiments.curves")  # the package has the function
LOOKS = styles([*TRANSFORMS, "teacher", "baseline"])
pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'understudy[plots]'")


def test_forty_labels_in_a_figure_do_not_overlap() -> None:
    results = sweep(budgets=(4_000, 7_000, 12_000, 20_000, 34_000))
    groups = group_results(results)
    with drawing():
        figure, (ax,) = new_figure(3.9)
        ax.set_xscale("log")
        texts = [
            (group.label, float(group.first.params or 0), group.error.mean) for group in groups if group.error
        ]
        ax.plot([x for _, x, _ in texts], [y for _, _, y in texts], "o")
        boxes = label_points(figure, ax, texts)
        drawn = [annotation for annotation in ax.texts if annotation.get_text()]
        extents = [annotation.get_window_extent() for annotation in drawn]
    assert len(texts) == 36
    assert len(drawn) == len(boxes) >= 20
    for one, other in itertools.combinations(extents, 2):
        assert (
            one.x1 <= other.x0 + 1
            or other.x1 <= one.x0 + 1
            or one.y1 <= other.y0 + 1
            or other.y1 <= one.y0 + 1
        )


def test_the_figure_of_errors_has_a_log_axis_and_the_front() -> None:
    groups = group_results(sweep())
    with drawing():
        figure = error_figure(groups, groups[0].problem, LOOKS, "params", "parameters")
    assert figure is not None
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    front = next(line for line in ax.lines if line.get_label() == "Pareto front")
    errors = np.asarray(front.get_ydata())
    assert len(errors) > 1
    assert (np.diff(errors) < 0).all()


def test_a_series_may_be_called_by_what_would_be_a_broken_formula(tmp_path: Path) -> None:
    results = [teacher(), result("cell", structure=r"a$\frac{$b")]
    groups = group_results(results)
    looks = report_styles(results, None)
    with drawing():
        for figure in (
            error_figure(groups, groups[0].problem, looks, "params", "parameters"),
            learning_figure(results, groups[0].problem, looks),
        ):
            assert figure is not None
            figure.savefig(tmp_path / "drawn.svg")


def test_nothing_finished_is_no_figure() -> None:
    groups = group_results([result(state="running")])
    with drawing():
        assert error_figure(groups, groups[0].problem, LOOKS, "params", "parameters") is None
        assert learning_figure(groups[0].results, groups[0].problem, LOOKS) is None
        assert ablation_figure([], LOOKS) is None


def test_few_ablations_are_bars_and_many_are_rows_of_markers() -> None:
    few = ablations(sweep(("low_rank", "acdc"), ablate=True))
    many = ablations(sweep(budgets=(4_000, 6_000, 8_000, 12_000), ablate=True))
    assert len(few) <= MOST_BARS < len(many)
    with drawing():
        bars, rows = ablation_figure(few, LOOKS), ablation_figure(many, LOOKS)
    assert bars is not None
    assert rows is not None
    assert [tick.get_text() for tick in bars.axes[0].get_yticklabels()] == [
        row.label for row in few if row.factor == "attention transfer"
    ]
    assert [tick.get_text() for tick in rows.axes[1].get_yticklabels()] == list(TRANSFORMS)


def test_names_that_look_like_mathematics_or_paths_are_drawn_as_they_are_in_files_of_their_own(
    tmp_path: Path,
) -> None:
    odd: dict[str, Any] = {"network": "../../$\\frac{", "data": "a/b"}
    results = [
        result("one", structure="$x_", **odd),
        result("two", structure="<img>", **odd, attention=0.0),
        result("three", structure="$x_", **odd, attention=0.0),
        result("alike once made safe", structure="$x_", **odd | {"data": "a b"}),
    ]
    looks = report_styles(results, None)
    paths = write_figures(group_results(results), ablations(results), None, looks, tmp_path)
    assert len(paths) == len(set(paths)) == len(list(tmp_path.iterdir())) == 2 * (2 * 3 + 1)
    assert all(path.parent == tmp_path for path in paths)


def test_the_paper_s_transforms_look_the_same_whatever_stands_beside_them() -> None:
    everything = styles([*TRANSFORMS, "dense", "teacher", "baseline", "mine", "yours"])
    alone = {key: look for name in TRANSFORMS for key, look in styles([name, "other"]).items()}
    assert all(alone[name] == everything[name] for name in TRANSFORMS)


names = st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=len(COLOURS) * len(MARKERS) - 6)


@settings(max_examples=50, deadline=None)
@given(names, st.randoms(use_true_random=False))
def test_new_transforms_get_looks_of_their_own_whatever_their_order(keys: list[str], random: Any) -> None:
    made = styles([*TRANSFORMS, *keys, "teacher", "baseline"])
    assert set(made) == {*TRANSFORMS, *keys, "teacher", "baseline"}
    assert len({(look.light, look.marker) for look in made.values()}) == len(made)
    assert all(look.marker in canvas.MARKERS for look in made.values())
    assert made == styles(random.sample([*made], len(made)))
    few = styles(keys[: len(COLOURS)])
    known = {*TRANSFORMS, "dense", "teacher", "baseline"}
    if not known & set(keys):
        assert len({look.light for look in few.values()}) == len(few)


def test_when_all_combinations_are_taken_one_is_repeated() -> None:
    many = [f"transform-{number}" for number in range(len(COLOURS) * len(MARKERS) + 5)]
    assert len(styles(many)) == len(many)


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
VISIONS = {
    "full": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(("ground", "background"), [(0, "#ffffff"), (1, "#14161a")])
def test_colours_are_told_apart_by_the_colour_blind_and_from_the_ground(
    vision: str, ground: int, background: str
) -> None:
    colours = [pair[ground] for pair in COLOURS]
    seen = [lab(VISIONS[vision] @ linear(colour)) for colour in colours]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 12.5
    for colour in colours:
        dark, light = sorted(0.05 + luminance(linear(each)) for each in (colour, background))
        assert light / dark >= 3


def linear(colour: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    values = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def luminance(colour: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(XYZ[1] @ colour)


def lab(colour: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    shares = XYZ @ np.clip(colour, 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(shares > 0.008856, np.cbrt(shares), 7.787 * shares + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_ticks_are_short() -> None:
    texts = [tick_text(value) for value in (0.5, 20, 5_000, 200_000, 1_000_000, 2.5e6)]
    assert texts == ["0.5", "20", "5k", "200k", "1M", "2.50M"]


def test_a_file_name_is_safe() -> None:
    assert [file_name(text) for text in ("../a b", "", "wrn_28_2.5")] == ["a-b", "", "wrn_28_2.5"]
    assert len(file_name("a" * 10_000)) == 80


@pytest.fixture(scope="module")
def drawn() -> Curves:
    return curves("wrn_10_2")


def test_curves_of_a_network_become_three_figures(drawn: Curves, tmp_path: Path) -> None:
    paths = write_figures([], [], drawn, report_styles([], drawn), tmp_path)
    names = {"knob_params", "hash_buckets", "width_mult_adds"}
    assert {path.name for path in paths} == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}


def test_parameters_never_fall_as_the_knob_rises_and_all_reach_the_range_said(drawn: Curves) -> None:
    data = drawn.knob_params
    assert data is not None
    assert data.support is not None
    low, high = data.support
    assert low < high < data.dense
    assert set(data.transforms) == set(known_transforms()) - {"dense"}
    for params in data.transforms.values():
        assert list(params) == sorted(params)
        assert params[0] <= low
        assert params[-1] >= high


def test_independent_indices_waste_weights_as_the_theory_says_and_balanced_ones_none() -> None:
    data = hash_buckets()
    assert data.balanced == (0.0,) * len(data.balanced)
    for ratio, share in zip(data.measured_ratio, data.independent, strict=True):
        expected = data.theory[data.ratio.index(ratio)] if ratio in data.ratio else 0.0
        assert share == pytest.approx(expected, abs=0.005)


def test_acdc_gets_cheaper_than_dense_near_six_hundred() -> None:
    data = width_mult_adds(12)
    assert data.crossover_published == 603
    assert data.crossover is not None
    assert 600 < data.crossover < 660
    for width, dense, counted in zip(data.width, data.dense, data.acdc, strict=True):
        assert (counted < dense) == (width >= data.crossover)
    assert width_mult_adds(500).crossover is None


def test_a_sweep_draws_the_curves_of_its_first_built_in_network_with_the_sites_of_its_students(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, object]] = []

    def note(network: str, *, include: object, exclude: object) -> Curves:
        asked.append((network, exclude))
        assert include is None
        return Curves()

    monkeypatch.setattr(curves_module, "curves", note)
    student = result("s", settings={"request": {"exclude": ["*.shortcut"], "transform": {"*": "low_rank"}}})
    assert sweep_curves([teacher(), result("t", network="timm:x"), student]) == Curves()
    assert asked == [("wrn_10_2", ("*.shortcut",))]
    assert sweep_curves([result("t", network="timm:x")]) is None
