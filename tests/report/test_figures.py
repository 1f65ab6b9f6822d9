"""Figures: labels that can be read, the same look for a transform everywhere, all kinds of names."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from synthetic import TRANSFORMS, result, sweep

from understudy.experiments.curves import curves, hash_buckets, width_mult_adds
from understudy.report.figures.canvas import drawing, file_name, label_points, new_figure, tick_text
from understudy.report.figures.style import styles
from understudy.report.figures.sweep_figures import (
    MOST_BARS,
    ablation_figure,
    error_figure,
    learning_figure,
    write_figures,
)
from understudy.report.read.cells import parse_cells
from understudy.report.read.groups import ablations, group_cells

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'understudy[plots]'")


def test_forty_labels_in_a_figure_do_not_overlap() -> None:
    results = sweep(budgets=(4_000, 7_000, 12_000, 20_000, 34_000))
    groups = group_cells(parse_cells(results))
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
    groups = group_cells(parse_cells(sweep()))
    with drawing():
        figure = error_figure(groups, groups[0].task, lambda cell: cell.params, "parameters", "params")
    assert figure is not None
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    front = next(line for line in ax.lines if line.get_label() == "Pareto front")
    errors = np.asarray(front.get_ydata())
    assert len(errors) > 1
    assert (np.diff(errors) < 0).all()


def test_nothing_finished_is_no_figure() -> None:
    groups = group_cells(parse_cells([result(error=None, curve=[], status="running")]))
    with drawing():
        assert error_figure(groups, groups[0].task, lambda cell: cell.params, "parameters", "params") is None
        assert learning_figure(groups[0].cells, groups[0].task) is None
        assert ablation_figure([]) is None


def test_few_ablations_are_bars_and_many_are_rows_of_markers() -> None:
    few = ablations(parse_cells(sweep(("low_rank", "acdc"), ablate=True)))
    many = ablations(parse_cells(sweep(budgets=(4_000, 6_000, 8_000, 12_000), ablate=True)))
    assert len(few) <= MOST_BARS < len(many)
    with drawing():
        bars, rows = ablation_figure(few), ablation_figure(many)
    assert bars is not None
    assert rows is not None
    assert [tick.get_text() for tick in bars.axes[0].get_yticklabels()] == [
        row.label for row in few if row.factor == "attention transfer"
    ]
    assert [tick.get_text() for tick in rows.axes[1].get_yticklabels()] == list(TRANSFORMS)


def test_names_that_look_like_mathematics_or_paths_are_drawn_as_they_are(tmp_path: Path) -> None:
    odd = [
        result("one", transform="$x_", network="../../$\\frac{", data="a/b"),
        result("two", transform="<img>", network="../../$\\frac{", data="a/b", attention=0.0),
        result("three", transform="$x_", network="../../$\\frac{", data="a/b", attention=0.0),
    ]
    cells = parse_cells(odd)
    paths = write_figures(group_cells(cells), ablations(cells), None, tmp_path)
    assert paths
    assert all(path.parent == tmp_path and path.exists() for path in paths)


def test_names_made_safe_may_be_alike_and_keep_their_own_files(tmp_path: Path) -> None:
    cells = parse_cells([result("one", data="a b"), result("two", data="a/b")])
    paths = write_figures(group_cells(cells), [], None, tmp_path)
    assert len(paths) == len(set(paths)) == len(list(tmp_path.iterdir()))


def test_a_transform_looks_the_same_whatever_stands_beside_it() -> None:
    everything = styles([*TRANSFORMS, "dense", "teacher", "baseline", "mine", "yours"])
    assert styles(["hashed", "new"])["hashed"] == everything["hashed"]
    looks = list(everything.values())
    assert len({(look.light, look.marker) for look in looks}) == len(looks)


def test_ticks_are_short() -> None:
    texts = [tick_text(value) for value in (0.5, 20, 5_000, 200_000, 1_000_000, 2.5e6)]
    assert texts == ["0.5", "20", "5k", "200k", "1M", "2.50M"]


def test_a_file_name_is_safe() -> None:
    assert file_name("../a b", "", "wrn_28_2.5") == "a-b-unnamed-wrn_28_2.5"


def test_curves_of_a_network_become_three_figures(tmp_path: Path) -> None:
    paths = write_figures([], [], curves("wrn_10_2"), tmp_path)
    names = {"knob_params", "hash_buckets", "width_mult_adds"}
    assert {path.name for path in paths} == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}


def test_parameters_never_fall_as_the_knob_rises_and_all_reach_the_range_said() -> None:
    data = curves("wrn_10_2")["knob_params"]
    low, high = data["support"]
    assert low < high < data["dense"]
    assert set(data["transforms"]) == set(TRANSFORMS)
    for params in data["transforms"].values():
        assert params == sorted(params)
        assert params[0] <= low
        assert params[-1] >= high


def test_independent_indices_waste_weights_as_the_theory_says_and_balanced_ones_none() -> None:
    data = hash_buckets()
    assert data["balanced"] == [0.0] * len(data["balanced"])
    for ratio, share in zip(data["measured_ratio"], data["independent"], strict=True):
        expected = data["theory"][data["ratio"].index(ratio)] if ratio in data["ratio"] else 0.0
        assert share == pytest.approx(expected, abs=0.005)


def test_acdc_gets_cheaper_than_dense_near_six_hundred() -> None:
    data = width_mult_adds(12)
    assert data["crossover_published"] == 603
    assert 600 < data["crossover"] < 660
    for width, dense, counted in zip(data["width"], data["dense"], data["acdc"], strict=True):
        assert (counted < dense) == (width >= data["crossover"])
    assert width_mult_adds(500)["crossover"] is None
