"""A compression's numbers → what is to read of it: the card and the page."""

from __future__ import annotations

from pathlib import Path

from understudy._util.files import whole_file
from understudy.compressions import FILE, Compressed

from .card import card
from .page.compression import compression_page


def write_compression(result: Compressed, folder: Path) -> None:
    """Write README.md, the card, and index.html, the page, beside compress.json and the students.

    >>> import torch, understudy as us
    >>> from pathlib import Path
    >>> from understudy.compressions import Compressed, Machine
    >>> from understudy.experiments import Tradeoff
    >>> from understudy.report import write_compression
    >>> model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    >>> curve = Tradeoff(model, data=[torch.randn(64, 32)], test=[torch.randn(16, 32)])
    >>> student = curve.student("low_rank", us.Budget.of(ratio=0.5)).record
    >>> machine = Machine("x86_64", 2, "cpu", "2.13", "3.12", 1)
    >>> result = Compressed(us.__version__, None, machine, "mine", {}, "", "", "random", (1, 32), (), (), 0,
    ...     curve.costs, curve.yardstick.quality, curve.looked, curve.skipped, (student,), (), (), 1.0)
    >>> folder = Path("compressed")
    >>> folder.mkdir()
    >>> write_compression(result, folder)
    >>> sorted(path.name for path in folder.iterdir())
    ['README.md', 'index.html']
    """
    folders = [f"{student.folder}/" if student.folder else "" for student in result.students]
    files = [f"{place}{name}" for place in folders for name in ("student.safetensors", "plan.json")]
    page = compression_page(result, ["README.md", FILE, *files])
    for name, text in (("README.md", card(result)), ("index.html", page)):
        with whole_file(folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")
