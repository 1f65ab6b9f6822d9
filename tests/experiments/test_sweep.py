"""Sweeps: every cell ends recorded, whatever happens to it; folders and results that are refused."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sweeps import LOW_RANK, SHUFFLE, TEACHER, InlineEngine, quickly, tiny, without_clock
from understudy.experiments import (
    Event,
    GridError,
    PlannedCell,
    Task,
    new_result,
    plan_cells,
    read_results,
    run_task,
    sweep,
    sweep_status,
)
from understudy.experiments import task as task_module
from understudy.experiments.collect import learning_curve
from understudy.experiments.folder import write_result
from understudy.planning.plan import Plan
from understudy.report.read.groups import ablations
from understudy.results import Costs, ErrorRates, ResultsError, Status
from understudy.train import Run
from understudy.train.figures import Epoch, Errors


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """One thread, as small networks are slower on many and bits may depend on it; few turns of timing."""
    with quickly():
        yield


def done(_: Task) -> Status:
    raise AssertionError("nothing was left to do")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that went well."""
    out = tmp_path_factory.mktemp("finished") / "sweep"
    sweep(tiny(), out, engine=InlineEngine())
    return out


def test_a_sweep_trains_the_teacher_first_and_leaves_a_full_result_of_every_cell(finished: Path) -> None:
    results = read_results(finished)
    assert [result.name for result in results] == [TEACHER, LOW_RANK, SHUFFLE]
    index = json.loads((finished / "grid.json").read_text())
    assert (index["format"], index["name"], index["identity"]) == (2, "tiny", tiny().identity)
    assert [entry["name"] for entry in index["cells"]] == [TEACHER, LOW_RANK, SHUFFLE]
    teacher, student = results[:2]
    assert (teacher.role, teacher.structure, teacher.budget, teacher.teacher) == ("teacher", "", None, "")
    assert (student.role, student.structure, student.transforms) == ("student", "low_rank", ("low_rank",))
    assert student.budget is not None
    assert (student.budget.metric, student.budget.amount, student.budget.label) == ("ratio", 0.1, "10%")
    assert student.teacher == teacher.id
    assert (student.decay, student.crs, student.indifferent["teacher"]) == ("crs", "layer", TEACHER)
    for result in results:
        assert (result.grid, result.status) == ("tiny", Status("finished"))
        assert (result.network, result.data, result.seed) == ("wrn_10_1", "digits", 0)
        assert [epoch.epoch for epoch in result.curve] == [0, 1]
        last = result.curve[-1]
        assert last.test_error is not None
        assert last.test_top5_error is not None
        assert result.errors == ErrorRates(last.test_error, last.test_top5_error, 500)
        model = finished / "runs" / result.name / "model.safetensors"
        assert result.planned is not None
        planned = (result.planned.params, result.planned.mult_adds, result.planned.ideal_mult_adds)
        assert result.costs == Costs(*planned, model.stat().st_size)
        assert result.speed is not None
        assert result.speed.images_per_second > 0
        assert result.speed.latency_ms > 0
        assert result.machine is not None
        assert (result.machine.torch, result.machine.threads) == (torch.__version__, 1)
        assert result.seconds > 0


def test_a_cell_and_its_run_have_one_identity_and_one_plan(finished: Path) -> None:
    for item in plan_cells(tiny()):
        run = Run.read(finished / "runs" / item.cell.name)
        assert run.identity == item.cell.id
        if item.plan is not None:
            assert Plan.load(run.folder / "plan.json") == item.plan


def test_a_cell_is_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*_: object) -> None:
        raise AssertionError("it was planned again in its worker")

    monkeypatch.setattr("understudy.train.job.make_student_plan", again)
    grid = tiny(students=[{"transforms": "shuffle", "ratio": 0.1, "attention": False}])
    tasks: list[Task] = []

    def keep(task: Task) -> Status:
        tasks.append(task)
        return Status("failed", "not now")

    sweep(grid, tmp_path / "out", engine=InlineEngine(keep))
    assert run_task(tasks[-1]) == Status("finished")


def test_settings_that_change_no_outcome_keep_no_pair_of_an_ablation_apart() -> None:
    base = {"transforms": "low_rank", "ratio": 0.1}
    grid = tiny(
        students=[
            base | {"attention": True, "settings": {"recompute": True}},
            base | {"attention": False, "settings": {"recompute": False, "workers": 2}},
        ]
    )
    results = [new_result("tiny", item) for item in plan_cells(grid)]
    assert [row.factor for row in ablations(results)] == ["attention transfer"]
    other = tiny(students=[base, base | {"attention": False, "settings": {"clip": 3.0}}])
    assert ablations([new_result("tiny", item) for item in plan_cells(other)]) == []


def test_an_exception_for_every_transform_of_a_cell_is_no_crs() -> None:
    def crs(*overrides: str, decay: bool = True) -> str:
        block = {"transforms": [{"Linear": "shuffle", "*": "low_rank"}], "ratio": 0.1, "crs": decay}
        [_, cell] = tiny(students=[block | {"settings": {"decay_overrides": list(overrides)}}]).cells
        return new_result("tiny", PlannedCell(cell, None, None)).crs

    assert crs() == crs("shuffle=none") == crs("low_rank=crs", decay=False) == "layer"
    assert crs("shuffle=none", "low_rank=none") == crs(decay=False) == ""


def test_what_an_epoch_did_not_measure_is_not_known() -> None:
    (point,) = learning_curve([Epoch(epoch=0, step=8, learning_rate=0.1, train_loss=2.0, seconds=1.0)])
    assert (point.train_loss, point.test_error, point.seconds) == (2.0, None, 1.0)


def test_finished_cells_are_never_repeated(finished: Path) -> None:
    before = {path: path.read_bytes() for path in (finished / "results").iterdir()}
    events: list[Event] = []
    sweep(tiny(), finished, engine=InlineEngine(done), report=events.append)
    assert {path: path.read_bytes() for path in (finished / "results").iterdir()} == before
    assert [(event.kind, event.done, event.total) for event in events] == [("kept", 3, 3)]


def test_a_result_lost_with_the_sweep_is_taken_from_its_run(finished: Path) -> None:
    before = without_clock(finished)
    (finished / "results" / f"{LOW_RANK}.json").unlink()
    engine = InlineEngine()
    sweep(tiny(), finished, engine=engine)
    assert engine.names == [LOW_RANK]
    assert without_clock(finished) == before
    assert len(Run.read(finished / "runs" / LOW_RANK).metrics()) == 2


def test_a_finished_network_that_is_gone_or_damaged_is_told_and_the_others_are_measured(
    finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "runs" / LOW_RANK)
    (out / "runs" / SHUFFLE / "model.safetensors").write_bytes(b"not weights")
    result = json.loads((out / "results" / f"{TEACHER}.json").read_text())
    (out / "results" / f"{TEACHER}.json").write_text(json.dumps({**result, "speed": None}))
    events: list[Event] = []
    results = sweep(tiny(), out, engine=InlineEngine(done), report=events.append)
    speeds = {result.name: result.speed for result in results}
    assert speeds[TEACHER] is not None
    assert (speeds[LOW_RANK], speeds[SHUFFLE]) == (None, None)  # the older ones do not compare
    told = {event.cell: event.text for event in events if event.kind == "unmeasured"}
    assert list(told) == [LOW_RANK, SHUFFLE]
    assert "holds no run" in told[LOW_RANK]
    assert "model.safetensors" in told[SHUFFLE]
    (out / "runs" / SHUFFLE / "model.safetensors").unlink()
    events.clear()
    sweep(tiny(), out, engine=InlineEngine(done), report=events.append)
    assert [event.kind for event in events] == ["kept"]  # nothing can be measured that is not


def test_a_task_names_an_existing_teacher_by_a_path_that_holds_anywhere(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: dict[str, Task] = {}

    def keep(task: Task) -> Status:
        tasks[task.name] = task
        return Status("failed", "not of interest")

    monkeypatch.chdir(finished)
    for number, existing in enumerate([f"runs/{TEACHER}", f"runs/{TEACHER}/model.safetensors"]):
        sweep(tiny(teacher={"existing": existing}), tmp_path / str(number), engine=InlineEngine(keep))
        assert tasks.pop(LOW_RANK).recipe.teacher == str(finished.resolve() / existing)


def test_a_narrower_network_learns_from_a_file_of_weights(finished: Path, tmp_path: Path) -> None:
    weights = finished / "runs" / TEACHER / "model.safetensors"
    narrow = {"narrow": "20k", "attention": [False, True]}
    grid = tiny(teacher={"existing": str(weights)}, students=[], baselines=[narrow])
    alone, taught = sweep(grid, tmp_path / "out", engine=InlineEngine())
    assert (alone.status.state, taught.status.state) == ("finished", "finished"), taught.status.reason
    assert taught.network != "wrn_10_1"
    assert (alone.indifferent["teacher_network"], taught.indifferent["teacher_network"]) == ("", "wrn_10_1")
    assert alone.errors != taught.errors or alone.curve != taught.curve


def test_a_cell_that_diverges_is_recorded_and_stops_no_other(tmp_path: Path) -> None:
    table = {"settings": {"learning_rate": 1e30, "clip": 0.0}, "transforms": "low_rank", "ratio": 0.1}
    grid = tiny(students=[table, {"transforms": "shuffle", "ratio": 0.1}])
    results = {result.structure: result for result in sweep(grid, tmp_path / "out", engine=InlineEngine())}
    assert {name: result.status.state for name, result in results.items()} == {
        "": "finished", "low_rank": "diverged", "shuffle": "finished",
    }  # fmt: skip
    lost = results["low_rank"]
    assert "step" in lost.status.reason
    assert (lost.errors, lost.costs, lost.speed) == (None, None, None)
    assert lost.planned is not None
    engine = InlineEngine(done)
    sweep(grid, tmp_path / "out", engine=engine)
    assert engine.names == []
    (tmp_path / "out" / "results" / f"{lost.name}.json").unlink()  # as if killed before it was written
    again = {result.structure: result for result in sweep(grid, tmp_path / "out", engine=InlineEngine())}
    assert again["low_rank"].status == lost.status


def test_a_cell_that_fails_is_recorded_and_tried_again_by_the_next_sweep(
    finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def broken(task: Task) -> Status:
        return Status("failed", "OSError: no space left") if task.name == LOW_RANK else run_task(task)

    events: list[Event] = []
    results = sweep(tiny(), out, engine=InlineEngine(broken), report=events.append)
    states = {result.name: result.status.state for result in results}
    assert states == {TEACHER: "finished", LOW_RANK: "failed", SHUFFLE: "finished"}
    assert ("failed", LOW_RANK, "OSError: no space left") in [(e.kind, e.cell, e.text) for e in events]
    found = sweep_status(out)
    assert found.counts == {"finished": 2, "failed": 1}
    failures = [(cell.name, cell.status.reason) for cell in found.failures]
    assert failures == [(LOW_RANK, "OSError: no space left")]
    engine = InlineEngine()
    sweep(tiny(), out, engine=engine)
    assert engine.names == [LOW_RANK]
    assert without_clock(out) == without_clock(finished)


def test_an_engine_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no engine 'slurm': give 'local', 'ray' or an object"):
        sweep(tiny(), tmp_path / "out", engine="slurm")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_the_students_of_a_teacher_that_fails_fail_with_its_reason(tmp_path: Path) -> None:
    def broken(task: Task) -> Status:
        return Status("failed", "it rained") if task.name == TEACHER else Status("failed", "not asked")

    alone = {"transforms": "low_rank", "ratio": 0.1, "attention": False}
    engine = InlineEngine(broken)
    results = sweep(tiny(students=[*tiny_students(), alone]), tmp_path / "out", engine=engine)
    reasons = {result.name: result.status.reason for result in results}
    assert reasons == {
        TEACHER: "it rained",
        LOW_RANK: f"its teacher {TEACHER} has failed: it rained",
        SHUFFLE: f"its teacher {TEACHER} has failed: it rained",
        "low_rank-ratio-0.1-crs-seed-0": "not asked",
    }
    assert engine.names == [TEACHER, "low_rank-ratio-0.1-crs-seed-0"]


def tiny_students() -> list[dict[str, Any]]:
    return [{"transforms": ["low_rank", "shuffle"], "ratio": 0.1}]


def test_unreachable_cells_are_recorded_or_nothing_is_begun(tmp_path: Path) -> None:
    table: dict[str, Any] = {"students": [{"transforms": "shuffle", "params": ["100"]}]}
    engine = InlineEngine(lambda _: Status("failed", "not of interest"))
    with pytest.raises(GridError, match="1 of 2 cells cannot be reached"):
        sweep(tiny(**table), tmp_path / "out", engine=engine)
    assert not (tmp_path / "out").exists()
    missed = sweep(tiny(**table, unreachable="skip"), tmp_path / "out", engine=engine)[1]
    assert missed.status.state == "unreachable"
    assert "below" in missed.status.reason
    assert missed.planned is None


def test_a_grid_that_only_adds_cells_goes_on_in_the_same_folder(finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    engine = InlineEngine(lambda _: Status("failed", "not of interest"))
    other = {"transforms": "low_rank", "ratio": 0.1, "settings": {"clip": 1.0}}  # of a name that is there
    grown = tiny(students=[*tiny_students(), {"transforms": "hashed", "ratio": 0.1}, other])
    sweep(grown, out, engine=engine)
    assert engine.names == ["hashed-ratio-0.1-at-crs-seed-0", f"{LOW_RANK}-{grown.cells[-1].id[:6]}"]
    assert len(json.loads((out / "grid.json").read_text())["cells"]) == 5


def test_a_folder_of_another_grid_is_refused_and_left_as_it_is(finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*.json")}
    for other in (tiny(seeds=[1]), tiny(students=[{"transforms": "low_rank", "ratio": 0.1}])):
        with pytest.raises(GridError, match=r"belongs to another grid, tiny: .*choose another --out"):
            sweep(other, finished, engine=InlineEngine(done))
    assert {path: path.read_bytes() for path in finished.rglob("*.json")} == before


VERSION = (
    '{"format": 3, "understudy": "9.0"}',
    r"has format 3, written by understudy 9\.0; .* reads format 2",
)
RESULT = f"results/{LOW_RANK}.json"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("grid.json", *VERSION),
        ("grid.json", '{"cells": []}', "has format None"),
        ("grid.json", "[]", "not a table"),
        ("grid.json", '{"format": 2', "is not JSON"),
        ("grid.json", '{"format": 2}', "are missing"),
        (RESULT, *VERSION),
        (RESULT, '{"cells": []}', "has format None"),
    ],
)
def test_a_sweep_of_another_version_is_refused_and_nothing_is_lost(
    finished: Path, name: str, content: str, message: str
) -> None:
    kept = (finished / name).read_text()
    try:
        (finished / name).write_text(content)
        before = {path: path.read_bytes() for path in finished.rglob("*.json")}
        with pytest.raises(ResultsError, match=message):
            sweep(tiny(), finished, engine=InlineEngine(done))
        if name == "grid.json":
            with pytest.raises(ResultsError, match=message):
                sweep_status(finished)
        else:
            [told] = sweep_status(finished).passed_over
            assert re.search(message, told)
        assert {path: path.read_bytes() for path in finished.rglob("*.json")} == before
    finally:
        (finished / name).write_text(kept)


@pytest.mark.parametrize("content", ['{"format": 2}', "[" * 100_000], ids=["incomplete", "deep"])
def test_a_damaged_result_is_named_and_taken_from_its_run_again(finished: Path, content: str) -> None:
    kept = without_clock(finished)
    (finished / RESULT).write_text(content)
    found = sweep_status(finished)
    assert len(found.cells) == len(kept) - 1
    assert LOW_RANK in found.passed_over[0]
    engine = InlineEngine()
    sweep(tiny(), finished, engine=engine)
    assert engine.names == [LOW_RANK]
    assert without_clock(finished) == kept


def test_a_folder_that_is_no_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(GridError, match=r"holds no sweep but thesis\.tex"):
        sweep(tiny(), tmp_path, engine=InlineEngine(done))
    with pytest.raises(GridError, match="is a file"):
        sweep(tiny(), tmp_path / "thesis.tex", engine=InlineEngine(done))
    with pytest.raises(ResultsError, match="holds no sweep"):
        read_results(tmp_path)


def test_two_sweeps_do_not_share_a_folder(finished: Path) -> None:
    with (finished / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(GridError, match="another sweep is at work"):
            sweep(tiny(), finished, engine=InlineEngine(done))


def test_a_disk_without_locks_is_not_taken_for_another_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match=r"out/\.lock cannot be locked: No locks available"):
        sweep(tiny(), tmp_path / "out", engine=InlineEngine(done))
    run = Run(tmp_path / "run", tiny().cells[0].recipe)
    with pytest.raises(OSError, match=r"run/\.lock cannot be locked: No locks available"):
        Run.open(run.folder, run.recipe)
    with pytest.raises(OSError, match=r"run/\.lock cannot be locked: No locks available"):
        run.is_in_use()


# ---- one task ------------------------------------------------------------------------------------------


def teacher_task(folder: Path, **changes: Any) -> Task:
    recipe = tiny().cells[0].recipe.replaced(changes)
    return Task(TEACHER, recipe, str(folder), None, 1)


def test_a_task_survives_json() -> None:
    dense = teacher_task(Path("x"), taps=["stage1"])
    item = plan_cells(tiny())[1]
    assert item.plan is not None
    for task in (dense, dataclasses.replace(dense, recipe=item.cell.recipe, plan=item.plan)):
        assert Task.from_dict(json.loads(json.dumps(task.to_dict()))) == task


def test_an_error_becomes_a_status_of_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    status = run_task(teacher_task(tmp_path, batch_size=9999))
    assert status.state == "failed"
    assert status.reason.startswith("ValueError: batch size")
    assert "9999" in status.reason
    assert "\n" not in status.reason
    assert "Traceback" in capfd.readouterr().err


def test_a_run_in_use_is_waited_for_and_then_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    task = teacher_task(tmp_path / "run", epochs=1, train_images=16)
    monkeypatch.setattr(task_module, "_PATIENCE_SECONDS", 0.1)
    other = Run.open(tmp_path / "run", task.recipe)
    try:
        assert "is in use by another process" in run_task(task).reason
    finally:
        other.close()
    assert "RunInUseError" in capfd.readouterr().err
    monkeypatch.setattr(task_module, "_PATIENCE_SECONDS", 60.0)
    other = Run.open(tmp_path / "run", task.recipe)
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if seconds == 0.2:  # the task's; the run has given up
            other.close()

    monkeypatch.setattr("time.sleep", sleep)
    assert run_task(task).state == "finished"
    assert naps[-1] == 0.2


def test_one_who_only_asks_whether_a_run_is_in_use_does_not_keep_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny().cells[0].recipe
    Run.open(tmp_path, recipe).close()
    asking = (tmp_path / ".lock").open()
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: asking.close())
    run = Run.open(tmp_path, recipe)
    assert asking.closed
    assert run.is_in_use()
    run.close()
    assert not run.is_in_use()


# ---- how a sweep stands --------------------------------------------------------------------------------


def test_the_time_left_follows_from_the_epochs_done_and_is_unknown_without_any(tmp_path: Path) -> None:
    out = tmp_path / "out"
    grid = tiny(students=[{"transforms": ["low_rank", "shuffle"], "ratio": 0.1, "seeds": [0, 1]}])
    sweep(grid, out, engine=InlineEngine(lambda _: Status("failed", "x")))
    for result in read_results(out):
        write_result(out, dataclasses.replace(result, status=Status("waiting")))
    found = sweep_status(out)
    assert (found.counts, found.unknown, found.seconds_of_work, found.seconds_left) == (
        {"waiting": 5},
        5,
        0,
        None,
    )

    def log(name: str, *seconds: float) -> Run:
        cell = next(cell for cell in grid.cells if cell.name == name)
        run = Run.open(out / "runs" / name, cell.recipe)
        for epoch, second in enumerate(seconds):
            errors = Errors(1.0, 50.0 - epoch, 10.0, 100)
            run.log(Epoch(epoch, epoch, 0.1, 1.0, errors=errors, seconds=second))
        return run

    log(TEACHER, 3.0).close()
    log(LOW_RANK, 4.0, 6.0).close()
    at_work = log(SHUFFLE, 7.0)
    try:
        found = sweep_status(out)
    finally:
        at_work.close()
    left = {cell.name: cell.seconds_left for cell in found.cells}
    assert left == {
        TEACHER: 3.0,
        LOW_RANK: 0.0,
        "low_rank-ratio-0.1-at-crs-seed-1": 10.0,
        SHUFFLE: 7.0,
        "shuffle-ratio-0.1-at-crs-seed-1": 14.0,
    }
    assert found.counts == {"waiting": 4, "running": 1}
    assert (found.unknown, found.seconds_of_work, found.seconds_left) == (0, 34.0, 34.0)
    running = next(cell for cell in found.cells if cell.status.state == "running")
    assert (running.name, running.epochs, running.all_epochs, running.test_error) == (SHUFFLE, 1, 2, 50.0)
