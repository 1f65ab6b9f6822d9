"""The benchmark of networks that nobody here wrote finds what is wrong, and keeps what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import breadth
import breadth_checks
import understudy as us


def network() -> tuple[torch.nn.Module, torch.Tensor]:
    return us.create_model("wrn_10_1").eval(), torch.ones(1, 3, 8, 8)


def another() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return us.create_model("wrn_10_1").eval()


def test_a_network_that_holds_every_promise_is_told_in_numbers() -> None:
    told = breadth_checks.checked(*network(), "shuffle")
    assert told["low_rank"] == {"share": pytest.approx(0.5, abs=0.01), "layers": 8}
    assert told["shuffle"]["layers"] > 0


@pytest.mark.parametrize(
    ("name", "lie", "words"),
    [
        ("merge", lambda _: another().double(), "merged: outputs differ"),
        ("load", lambda _, __: another(), "loaded: outputs differ"),
        ("save", lambda _, path: path.write_bytes(b""), "bytes told, 0 written"),
    ],
)
def test_a_broken_promise_is_found(name: str, lie: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(us, name, lie)
    with pytest.raises(breadth_checks.WrongError, match=words):
        breadth_checks.checked(*network(), "shuffle")


class Jumping(torch.nn.Module):
    """What it answers is decided by the last digits of its numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = (1e17 * self.body(x)).sin()
        return answer


def test_a_network_whose_answers_rounding_decides_is_not_held_to_them_after_a_merge() -> None:
    told = breadth_checks.checked(Jumping().eval(), torch.ones(512, 256), "shuffle")
    assert told["low_rank"]["rounding_decides"]
    assert "rounding_decides" not in breadth_checks.checked(*network(), "shuffle")["low_rank"]


@pytest.mark.parametrize(("error", "status"), [(None, "ok"), (KeyError("x"), "failed")])
def test_whatever_a_network_meets_is_its_outcome(
    error: Exception | None, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*_: object) -> dict[str, int]:
        if error is not None:
            raise error
        return {"params": 3}

    monkeypatch.setattr(breadth, "make", lambda _: network())
    monkeypatch.setattr(breadth, "checked", check)
    assert breadth.outcome("timm:any")["status"] == status


def test_a_process_that_says_nothing_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breadth, "one", lambda _, __: None)
    record = breadth.in_a_process("timm:any", tmp_path / "any.json")
    assert (record["status"], record["why"]) == ("failed", "its process ended by 0")
    assert breadth.summary([record])["timm"] == {"ok": 0, "refused": 0, "failed": 1}


def test_a_refusal_is_a_sentence_of_understudy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breadth, "make", lambda _: (torch.nn.ReLU(), torch.zeros(1, 3)))
    record = breadth.outcome("timm:any")
    assert record["status"] == "refused"
    assert "has no site to substitute" in record["why"]
