"""The commands sweep and status: what they print, and one clear line with exit code 2 for bad input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command import Run
from sweeps import LOW_RANK, SHUFFLE, TEACHER, TOML, InlineEngine, quickly
from understudy.cli.experiments import duration
from understudy.experiments import Task, run_task, runner
from understudy.results import Status
from understudy.train import Recipe
from understudy.train import Run as TrainingRun
from understudy.train.figures import Epoch, Errors


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the tiny grid, where the commands run."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TOML + '\n[[baselines]]\nnarrow = "10k"\n')


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """One thread, as small networks are slower on many and bits may depend on it; few turns of timing."""
    with quickly():
        yield


Use = Callable[[Callable[[Task], Status]], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Let sweeps run their tasks in this process."""
    return lambda function: monkeypatch.setattr(runner, "LocalEngine", lambda *_: InlineEngine(function))


def test_a_sweep_tells_what_happens_and_ends_with_a_table(run: Run, use: Use) -> None:
    use(run_task)
    result = run("sweep", "tiny.toml", "--out", "out")
    assert result.code == 0, result.err
    assert f"[0/4] {TEACHER}: started" in result.err
    assert f"{LOW_RANK}: finished: test error " in result.err
    rows = [line.split()[0] for line in result.out.splitlines() if "%" in line]
    assert rows == [TEACHER, LOW_RANK, SHUFFLE, "narrow-10k-seed-0"]
    for word in ("parameters", "mult-adds", "on disk", "test error", "images/s", "wrn_10_0."):
        assert word in result.text
    status = run("status", "out")
    assert "tiny: 4 cells: 4 finished" in status.text
    assert "nothing is left to train" in status.text
    again = run("sweep", "tiny.toml", "--out", "out")
    assert (again.code, again.out) == (0, result.out)
    assert "4 cells are done already" in again.err
    other = run("sweep", "digits", "--out", "out")
    assert other.code == 2
    assert "belongs to another grid, tiny" in other.err


def test_a_failure_is_shown_by_name_and_ends_with_exit_code_1(run: Run, use: Use) -> None:
    use(lambda _: Status("failed", "OSError: [disk] is full"))
    result = run("sweep", "tiny.toml", "--out", "out")
    assert result.code == 1
    assert f"{TEACHER} failed: OSError: [disk] is full" in result.text
    status = run("status", "out")
    assert "4 cells: 4 failed" in status.text
    assert f"failed: {TEACHER}: OSError: [disk] is full" in status.text
    assert f"failed: {LOW_RANK}: its teacher {TEACHER} has failed: OSError: [disk] is full" in status.text


def test_a_cell_without_a_result_that_can_be_read_is_left_to_train(run: Run, use: Use) -> None:
    use(lambda _: Status("failed", "OSError: the disk is full"))
    run("sweep", "tiny.toml", "--out", "out")
    assert "nothing is left to train" in run("status", "out").text
    Path(f"out/results/{LOW_RANK}.json").unlink()
    Path(f"out/results/{TEACHER}.json").write_text("[]")
    text = run("status", "out").text
    assert "tiny: 4 cells: 2 failed, 2 waiting" in text
    assert "2 cells of unknown length; nothing is at work now: the same sweep command" in text


def test_status_tells_what_is_at_work_and_what_is_left(run: Run, use: Use) -> None:
    use(lambda _: Status("failed", "x"))
    run("sweep", "tiny.toml", "--out", "out")
    for path in Path("out/results").iterdir():
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"status": {"state": "waiting", "reason": ""}})
        )
    assert "4 cells of unknown length; nothing is at work now" in run("status", "out").text
    at_work = TrainingRun.open(Path("out/runs") / TEACHER, Recipe())
    try:
        at_work.log(Epoch(0, 1, 0.1, 1.0, errors=Errors(1.0, 25.0, 5.0, 100), seconds=90.0))
        text = run("status", "out").text
    finally:
        at_work.close()
    assert "1 running, 3 waiting" in text
    assert f"running: {TEACHER}, epoch 1/2, test error 25.00 %" in text
    assert "left: about 1.5 min of training, and 3 cells of unknown length" in text


def test_a_plan_stands_beside_the_published_counts(run: Run) -> None:
    result = run("sweep", "paper_wrn_50_2", "--plan-only")
    assert result.code == 0, result.err
    rows = {line.split()[0]: line.split()[1:] for line in result.out.splitlines() if "seed-0" in line}
    assert rows["teacher-seed-0"][:2] == ["68,883,240", "11.40G"]
    assert rows["low_rank-17.6M-at-crs-seed-0"][-2:] == ["17.55M", "2.83G"]
    assert rows["shuffle-6.04M-at-crs-seed-0"][-2:] == ["6.04M", "910.0M"]
    assert rows["hashed-4.35M-at-crs-seed-0"][-2:] == ["4.35M", "4.86G"]
    assert rows["narrow-4.35M-seed-0"][-1].startswith("wrn_50_0.")
    assert len(rows) == 13
    assert list(Path().iterdir()) == [Path("tiny.toml")]


def test_what_is_unreachable_is_shown_in_the_plan(run: Run) -> None:
    text = Path("tiny.toml").read_text().replace("ratio = 0.1", 'params = ["100", "8k"]')
    Path("tiny.toml").write_text(text)
    refused = run("sweep", "tiny.toml", "--plan-only")
    assert refused.code == 2
    assert "2 of 6 cells cannot be reached" in refused.err
    Path("tiny.toml").write_text('unreachable = "skip"\n' + text)
    shown = run("sweep", "tiny.toml", "--plan-only")
    assert shown.code == 0
    assert "low_rank-100-at-crs-seed-0 unreachable: low_rank on WideResNet: 100 parameters" in shown.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "tiny.toml"], "give a folder for the results: --out DIR"),
        (["sweep", "dmo", "--out", "out"], "no grid 'dmo'"),
        (["sweep", "none.toml", "--out", "out"], "nor such a file"),
        (["sweep", "tiny.toml", "--out", "tiny.toml"], "is a file"),
        (["status", "."], "holds no sweep"),
        (["sweep", "tiny.toml", "--out", "out", "--engine", "ray", "--gpus-per-cell", "-1"], "-1.0 GPUs"),
        (["sweep", "tiny.toml", "--out", "out", "--gpus-per-cell", "1"], "for the engine ray alone"),
    ],
)
def test_bad_input_ends_with_one_line_and_exit_code_2(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not Path("out").exists()


def test_data_that_are_missing_end_a_sweep_before_anything_is_made(run: Run, use: Use) -> None:
    use(lambda _: Status("failed", "never asked"))
    text = Path("tiny.toml").read_text()
    Path("cifar.toml").write_text('data = "cifar10"\n' + text)
    result = run("sweep", "cifar.toml", "--out", "out", "--data", "nowhere")
    assert (result.code, Path("out").exists()) == (2, False)
    assert "nowhere" in result.err
    assert "cifar10" in result.err
    assert len(result.err.strip().splitlines()) == 1
    Path("greedy.toml").write_text(text.replace("train_images = 128", "train_images = 9999"))
    result = run("sweep", "greedy.toml", "--out", "out")
    assert (result.code, Path("out").exists()) == (2, False)
    assert "9999" in result.err


def test_download_fetches_before_anything_is_made(
    run: Run, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Path | None, bool, bool]] = []

    def load(recipe: Recipe, folder: Path | None, *, download: bool) -> None:
        asked.append((recipe.data, folder, download, Path("out").exists()))

    monkeypatch.setattr(runner, "load_data", load)
    use(lambda _: Status("failed", "not of interest"))
    run("sweep", "tiny.toml", "--out", "out", "--data", "there", "--download")
    assert asked == [("digits", Path("there"), True, False)]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (90, "1.5 min"), (5400, "1.5 h"), (180_000, "2.1 days")]
)
def test_a_duration_is_written_in_its_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
