"""The bar of a long substitution: on a terminal, after a while, and nothing anywhere else."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
from torch import nn

import understudy as us
from understudy.students import progress


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "patience", "seen"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)]
)
def test_a_bar_is_shown_on_a_terminal_after_a_while(
    terminal: bool, patience: float, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", patience)
    assert [*progress.shown(range(5), "substituting")] == [0, 1, 2, 3, 4]
    assert ("substituting" in stream.getvalue()) == seen


def test_an_error_within_takes_the_bar_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)

    def fail(self: nn.Module, matrix: object) -> None:  # noqa: ARG001
        if self.out_features == 8:
            raise RuntimeError("no convergence")

    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 8), nn.Linear(8, 2))
    plan = us.plan(model, "low_rank", knob=1, include=["*"])
    monkeypatch.setattr(us.get_transform("low_rank"), "project_", fail)
    with pytest.raises(RuntimeError, match="no convergence"):
        us.substitute(model, plan)


def test_a_substitution_that_is_quick_or_unseen_imports_no_rich() -> None:
    code = (
        "import sys, torch, understudy as us\n"
        "from understudy.students import progress\n"
        "progress.PATIENCE_SECONDS = 0.0\n"
        "model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))\n"
        "us.substitute(model, us.plan(model, 'low_rank', knob=1))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'rich']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
