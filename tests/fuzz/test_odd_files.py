"""One odd file among many is named and passed over; all others are shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from file_kinds import make_run, make_sweep

from command import Run as Command
from understudy.train import Recipe, Run
from understudy.train.loop import train

ODD = ["", "[]", '{"format": 3}', "[" * 100_000, '{"format": NaN}', "\x00"]


@pytest.mark.parametrize("name", ["config.json", "status.json", "result.json", "plan.json"])
def test_runs_names_an_odd_file_and_shows_the_others(tmp_path: Path, run: Command, name: str) -> None:
    make_run(tmp_path / "sound")
    shutil.copytree(tmp_path / "sound", tmp_path / "odd")
    if name == "plan.json":  # which is asked where there is no result yet
        (tmp_path / "odd" / "result.json").unlink()
    for content in ODD:
        (tmp_path / "odd" / name).write_text(content)
        shown = run("runs", tmp_path)
        assert shown.code == 0, shown.err
        assert [line.split()[0] for line in shown.out.splitlines() if "finished" in line] == ["sound"]
        assert f"odd/{name}" in shown.out
    shutil.rmtree(tmp_path / "odd" / name, ignore_errors=True)


def test_an_odd_line_of_metrics_ends_what_is_believed(tmp_path: Path, run: Command) -> None:
    make_run(tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as stream:
        stream.write(b"\xff\xfe" + b"[" * 100_000 + b"\n")
    assert "2/2" in run("runs", tmp_path).out


def test_a_run_whose_status_is_odd_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    recipe = Recipe(network="wrn_10_1", train_images=64, epochs=1, batch_size=64, flip=False)
    first = train(recipe, folder)
    for name in ("status.json", "result.json"):
        (folder / name).write_text("[]")
        said: list[str] = []
        assert train(recipe, folder, report=said.append) == first
        assert name in said[0]
        assert Run.read(folder).status == "finished"


def test_status_and_report_name_an_odd_result_and_show_the_others(tmp_path: Path, run: Command) -> None:
    folder = tmp_path / "sweep"
    make_sweep(folder)
    contents = (*ODD, (folder / "results" / "two.json").read_text(), "[]")
    commands = ["status"] * (len(ODD) + 1) + ["report"]  # which draws
    for command, content in zip(commands, contents, strict=True):
        (folder / "results" / "one.json").write_text(content)
        shown = run(command, folder)
        assert shown.code == 0, shown.err
        assert "passed over: " in shown.out
        assert "one.json" in shown.out
        assert "1 cells" in shown.out


def test_an_odd_grid_is_named_in_one_line(tmp_path: Path, run: Command) -> None:
    folder = tmp_path / "sweep"
    make_sweep(folder)
    for content in ODD:
        (folder / "grid.json").write_text(content)
        for command in ("status", "report"):  # which draws nothing then
            shown = run(command, folder)
            assert (shown.code, shown.err.count("\n")) == (2, 1)
            assert "grid.json" in shown.err
