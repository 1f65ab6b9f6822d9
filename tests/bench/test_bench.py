"""The benchmark: cells are measured once, in any runtime, kept on disk, and told as tables and a figure."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from command import Run
from understudy._util.provenance import this_machine
from understudy._util.quantities import format_ms
from understudy._util.records import to_plain
from understudy._util.timing import Timing
from understudy.bench import run as run_module
from understudy.bench import worker
from understudy.bench.figure import exponent, figure, growth, times_by_width
from understudy.bench.record import DENSE, Bench, Cell, Done, Measured, Roof
from understudy.bench.run import run
from understudy.bench.suite import layer_cells, network_cells, quick_cells, whole_suite
from understudy.bench.tables import layer_lines, network_lines, sections, table
from understudy.bench.worker import measure, peak_bytes

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
ROOF = Roof(copy_gb_s=10.0, gmac_s=100.0)
LAYER = Cell("tokens", 64, 1, "eager", "inference", ("low_rank", "acdc"), ratio=0.3)


def measured(subject: str, best_ms: float, mult_adds: int = 10**9, **how: Any) -> Measured:
    return Measured(subject, 1000, mult_adds, how.get("moved"), best_ms, best_ms, 0.1, 9, False, 2**20, 4000)


def done(cell: Cell) -> Done:
    return Done(cell, (measured(DENSE, 12.0), measured("low_rank", 3.0, 10**8)))


def bench(*cells: Cell) -> Bench:
    return Bench("abc", this_machine(), ROOF, tuple(map(done, cells)))


def test_a_file_that_gives_something_else_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "output_error", lambda *_: 0.5)
    found = measure(dataclasses.replace(LAYER, runtime="onnx"), seconds=0.01)
    assert not found.subjects
    assert "gives something else than PyTorch: 5.0e-01 of the largest output" in str(found.problem)


def test_a_layer_is_measured_beside_the_dense_one_and_its_peers() -> None:
    found = measure(LAYER, seconds=0.01)
    assert found.problem is None
    names = [one.subject for one in found.subjects]
    assert names[:2] == [DENSE, "low_rank"]
    assert {"(naive low rank)", "(torch int8)"} <= set(names)
    dense, low_rank = found.subjects[:2]
    assert (dense.params, dense.mult_adds) == (64 * 64, 16 * 64 * 64)
    assert low_rank.params <= 0.3 * dense.params
    assert dense.calls >= 3
    assert dense.peak_bytes is not None
    assert dense.peak_bytes >= 4 * (64 * 64 + 16 * 64)


def test_a_training_step_of_a_convolution_is_measured() -> None:
    cell = Cell("conv", 1024, 1, "eager", "training", ("shuffle",), ratio=0.01)
    found = measure(cell, seconds=0.01)
    assert [one.subject for one in found.subjects] == [DENSE, "shuffle", "(naive low rank)"]


def test_a_network_is_measured_in_a_runtime_with_its_file() -> None:
    cell = Cell("wrn_10_1", None, 1, "onnx", "inference", ("low_rank",), ratio=0.5)
    found = measure(cell, seconds=0.01)
    assert found.problem is None
    dense, student = found.subjects
    assert dense.file_bytes is not None
    assert student.file_bytes is not None
    assert student.params <= 0.5 * dense.params


def test_what_cannot_be_measured_is_said_and_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ImportError("onnxruntime is not installed")

    monkeypatch.setattr("understudy.bench.worker.needed", refuse)
    found = measure(dataclasses.replace(LAYER, runtime="onnx"), seconds=0.01)
    assert found.subjects == ()
    assert "dense: onnxruntime is not installed" in str(found.problem)


def test_memory_counts_what_is_held() -> None:
    import torch

    held = torch.zeros(1000)
    assert peak_bytes(lambda: torch.zeros(500), [held]) == 4000 + 2000


class Worker:
    """Stands for the processes: what they print, and how often they were asked."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.fails = fails

    def __call__(self, *arguments: str, **_: object) -> Any:
        if arguments[0] == "roof":
            return to_plain(ROOF)
        self.calls.append(arguments[0])
        if self.fails is not None:
            raise self.fails
        content = json.loads(arguments[0])
        return to_plain(done(Cell(**{**content, "transforms": tuple(content["transforms"])})))


def test_a_cell_is_measured_once_and_a_second_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker()
    monkeypatch.setattr(run_module, "_call", worker)
    cells = layer_cells(("low_rank",), (64, 128), (1,), modes=("inference",))
    told: list[Done] = []
    assert len(run(cells, tmp_path / "bench.json", limit=0.0).done) == 0
    run(cells[:1], tmp_path / "bench.json")
    whole = run(cells, tmp_path / "bench.json", told=told.append)
    assert [each.cell for each in whole.done] == cells
    assert len(worker.calls) == len(cells) == 4
    assert [each.cell for each in told] == cells[1:]
    assert Bench.load(tmp_path / "bench.json") == whole


def test_a_process_that_fails_is_kept_with_its_reason_and_one_that_takes_too_long_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CalledProcessError(1, "x", stderr="Traceback\nValueError: no such network\n")
    monkeypatch.setattr(run_module, "_call", Worker(failed))
    (only,) = run([LAYER], tmp_path / "failed.json").done
    assert (only.subjects, only.problem) == ((), "ValueError: no such network")
    monkeypatch.setattr(run_module, "_call", Worker(subprocess.TimeoutExpired("x", 1)))
    assert run([LAYER], tmp_path / "late.json", limit=5.0).done == ()
    with pytest.raises(ValueError, match="0 seconds a cell: more than 0 are needed"):
        run([LAYER], tmp_path / "none.json", seconds=0)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "is not a benchmark"),
        ("{}", "the field 'format' is not 'understudy-bench'"),
        ('{"format": "understudy-bench", "version": 0}', "has version 0; this understudy reads version 2"),
        ('{"format": "understudy-bench", "version": 2}', "are missing"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: str, match: str) -> None:
    (tmp_path / "bench.json").write_text(content)
    with pytest.raises(ValueError, match=match):
        Bench.load(tmp_path / "bench.json")


def test_the_ideal_is_what_mult_adds_promise_or_the_roofline_allows() -> None:
    (row,) = bench(LAYER).rows()
    assert (row.speedup, row.reduction, row.ideal) == (4.0, 10.0, 10.0)
    assert row.gmac_s == pytest.approx(100 / 3)
    moved = [measured(DENSE, 12.0, moved=10**7), measured("low_rank", 3.0, 10**7, moved=10**7)]
    bound = dataclasses.replace(bench(), done=(Done(LAYER, tuple(moved)),)).rows()[0]
    assert bound.reduction == 100
    assert bound.ideal == pytest.approx(10)  # 10 ms of arithmetic against 1 ms of memory


def test_rows_of_a_table_have_one_order_whenever_they_were_measured() -> None:
    names = ("torch int8", "shuffle:inside", "tensor_train", "shuffle", "low_rank")
    subjects = (measured(DENSE, 12.0), *(measured(name, 3.0) for name in names))
    lines = layer_lines(dataclasses.replace(bench(), done=(Done(LAYER, subjects),)), "tokens", 1)
    shown = [line.split("`")[1] for line in lines[2:]]
    assert shown == ["low_rank", "tensor_train", "shuffle", "shuffle:inside", "torch int8"]


@pytest.mark.parametrize(
    ("time_ms", "shown"), [(0.0213, "0.0213"), (16.94, "16.9"), (999.6, "1,000"), (1120, "1,120")]
)
def test_a_long_time_has_no_exponent(time_ms: float, shown: str) -> None:
    assert format_ms(time_ms) == shown


def test_tables_and_the_figure_tell_what_was_measured() -> None:
    network = network_cells("wrn_28_10", ("low_rank",), params=1_200_000, runtimes=("eager", "onnx"))
    made = bench(LAYER, *network)
    assert "low_rank" in str(table(made))
    assert network_lines(made, "wrn_28_10 at 1.20M parameters", 8) == [
        "|  | parameters | mult-adds | PyTorch eager | ONNX Runtime | ONNX file |",
        "| --- | --- | --- | --- | --- | --- |",
        "| dense | 1,000 | 1.00G | 12 ms | 12 ms | 4.0 kB |",
        "| `low_rank` | 1,000 | 100.0M | 3 ms (4.0×) | 3 ms (4.0×) | 4.0 kB |",
    ]
    assert layer_lines(made, "tokens", 1)[-1] == "| `low_rank` | 4.0× (10.0×) |"
    assert network_lines(made, "darts", 8) == layer_lines(made, "conv", 1) == []
    assert network_lines(bench(*network[:1]), "wrn_28_10 at 1.20M parameters", 8)[0].endswith(
        "PyTorch eager |"
    )
    assert "### wrn_28_10 at 1.20M parameters, batch 1, inference" in sections(made)
    drawn = ElementTree.fromstring(figure(made))
    assert len(drawn.findall(".//{*}title")) == 5
    with pytest.raises(ValueError, match="nothing to draw"):
        figure(bench())


def test_the_suites_hold_what_they_say() -> None:
    cells = whole_suite()
    assert len(set(cells)) == len(cells)
    assert {cell.what for cell in cells} == {
        "conv", "tokens", "wrn_28_10", "wrn_50_2", "darts", "vit", "minilm",
    }  # fmt: skip
    assert all(cell.runtime == "eager" for cell in cells if cell.mode == "training")
    assert len(quick_cells()) < 8


def test_the_command_measures_draws_and_tells_what_is_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_call", Worker())
    out = tmp_path / "bench.json"
    flags = ("bench", "--out", str(out), "--network", "wrn_28_10", "--params", "1.2M", "--runtime", "eager")
    done = run(*flags, "--figure", str(tmp_path / "b.svg"), "--markdown", str(tmp_path / "b.md"))
    assert "wrn_28_10 at 1.20M parameters, batch 8, eager, inference" in done.out
    assert (tmp_path / "b.svg").read_text().startswith("<svg")
    assert "### wrn_28_10 at 1.20M parameters, batch 8" in (tmp_path / "b.md").read_text()
    assert "cells are not measured yet" in run("bench", "--out", str(out), "--quick", "--limit", "0").out
    assert "give one of --quick" in run("bench", "--quick", "--layers").err
    assert "are for one --network" in run("bench", "--params", "1M").err
    unknown = run("bench", "--network", "nosuch", "--out", str(tmp_path / "none.json"))
    assert (unknown.code, "no network 'nosuch'" in unknown.err) == (2, True)
    assert not (tmp_path / "none.json").exists()
    assert "is for --layers" in run("bench", "--width", "64").err
    assert "are for --layers or one --network" in run("bench", "--quick", "-t", "low_rank").err
    assert "give the transform alone" in run("bench", "--layers", "-t", "low_rank:inside").err
    wrong = run("bench", "--network", "wrn_28_10", "-t", "low_rank:outside").err
    assert "low_rank:outside: 'outside' is not one of auto, separable, inside, unfolded" in wrong


def test_growth_is_the_power_of_the_width_from_512_channels_on() -> None:
    cells = layer_cells(("low_rank",), (64, 512, 1024, 4096), (32,), modes=("inference",))
    subjects = {
        cell: (
            measured(DENSE, 7.0 if cell.width == 64 else 1e-5 * (cell.width or 0) ** 2),
            measured("low_rank", 1.0),
        )
        for cell in cells
    }
    made = dataclasses.replace(bench(), done=tuple(Done(cell, both) for cell, both in subjects.items()))
    by_width = times_by_width(made, "tokens", 32)
    assert exponent(by_width[DENSE]) == pytest.approx(2)
    assert exponent(by_width["low_rank"]) == pytest.approx(0)
    assert "dense  2.00" in growth(made, "tokens", 32)
    with pytest.raises(ValueError, match="no two widths of tokens from 512 on"):
        growth(bench(LAYER), "tokens", 1)


def test_the_quicker_of_two_layouts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def channels_last_wins(calls: dict[Any, Any], **_: object) -> dict[Any, Timing]:
        return {arranged: Timing(1.0 if arranged.channels_last else 2.0, 2.0, 3) for arranged in calls}

    monkeypatch.setattr("understudy.bench.worker.time_in_turns", channels_last_wins)
    cell = Cell("wrn_10_1", None, 1, "eager", "inference", ("low_rank:inside",), ratio=0.5)
    found = measure(cell, seconds=0.01)
    assert found.problem is None
    assert [one.subject for one in found.subjects] == [DENSE, "low_rank:inside"]
    assert [(one.channels_last, one.best_ms) for one in found.subjects] == [(True, 1000.0)] * 2
