"""Students of one grid share their teacher's answers: who does, where they lie, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweeps import LOW_RANK, SHUFFLE, TEACHER, InlineEngine, quickly, tiny
from understudy.distil.attention import AttentionTransfer
from understudy.experiments import Task, run_task, sweep
from understudy.experiments.sharing import sharing
from understudy.results import Status


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with quickly():
        yield


def test_a_sweep_asks_its_teacher_once_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked, kept = tmp_path / "out", list[str](), list[str | None]()
    ask = AttentionTransfer.ask

    def told(task: Task) -> Status:
        kept.append(task.answers)

        def counted(self: AttentionTransfer, batch: Any) -> Any:
            asked.append(task.name)
            return ask(self, batch)

        monkeypatch.setattr(AttentionTransfer, "ask", counted)
        return run_task(task)

    leftover = out / "answers" / "question" / ".epoch-0-part-0.safetensors.half"
    first = sweep(tiny(), out, engine=InlineEngine(lambda _: Status("failed", "not now")))
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    results = sweep(tiny(), out, engine=InlineEngine(told))
    assert [result.status.state for result in results] == ["finished"] * 3
    assert kept == [None, str(out / "answers"), str(out / "answers")]
    assert asked == [LOW_RANK] * 16  # two epochs of eight batches
    assert not (out / "answers").exists()
    assert [result.id for result in first] == [result.id for result in results]


def test_cells_share_answers_where_another_asks_the_same() -> None:
    block = {"transforms": ["low_rank", "shuffle"], "ratio": 0.1}
    grid = tiny(
        students=[
            block,
            {**block, "attention": False},
            {"transforms": "tucker", "ratio": 0.1, "seeds": [1]},
            {"transforms": "acdc", "ratio": 0.1, "settings": {"cutout": 2}},
        ]
    )
    assert sharing(grid.cells) == {LOW_RANK, SHUFFLE}


@pytest.mark.parametrize(("limit", "kept"), [(0, None), (10, "answers")])
def test_the_limit_is_the_caller_s(tmp_path: Path, limit: int, kept: str | None) -> None:
    seen: dict[str, Task] = {}

    def keep(task: Task) -> Status:
        seen[task.name] = Task.from_dict(task.to_dict())
        (Path(task.folder)).mkdir(parents=True)
        return Status("failed", "not now") if task.name != TEACHER else run_task(task)

    sweep(tiny(), tmp_path, engine=InlineEngine(keep), answers_limit=limit)
    assert seen[SHUFFLE].answers == (None if kept is None else str(tmp_path / kept))
    assert seen[SHUFFLE].answers_limit == limit


def test_a_limit_below_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="answers_limit is -1 bytes, below 0"):
        sweep(tiny(), tmp_path, answers_limit=-1)
