"""docs/llms.txt: the library for a language model, in one file: what it is, its calls, its pages.

python docs/_site/llms.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import understudy as us

DOCS = Path(__file__).parent.parent
FILE = DOCS / "llms.txt"
_ABOUT = """\
# understudy

> Makes a PyTorch network small: replaces its linear layers and convolutions by structured stand-ins
> (low-rank, Tensor-Train, Kronecker, hashed, …) so that the whole network meets a budget in parameters,
> mult-adds, bytes or modelled time; counts truthfully what the result costs; fits it to a trained network's
> data or trains it with the original as teacher.

Verbs return new objects; a verb that ends in `_` works in place. A budget is a ceiling, given as exactly one
of `params`, `mult_adds`, `bytes`, `ratio`, `latency`, `scale`, `knob`. An `example` is an input or its shape.

```python
import understudy as us

model = us.create_model("wrn_16_2")  # or timm:NAME, torchvision:NAME, transformers:NAME, or any nn.Module
plan = us.plan(model, "low_rank", ratio=0.1, example=(1, 3, 32, 32))
student = us.substitute(model, plan, init="fresh")  # to train; init="project" fits the model's weights
us.save(student, "student.safetensors")
student = us.load("student.safetensors", us.create_model("wrn_16_2"))
```

For a trained network and some unlabelled inputs: `student = us.compress(model, ratio=0.5, data=batches)`.
"""


def text() -> str:
    """The whole file."""
    calls = [_line(name) for name in us.__all__ if name != "__version__"]
    pages = [
        _page(path) for path in sorted(DOCS.glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
    ]
    ours = [
        name for name in us.list_transforms() if us.get_transform(name).__module__.startswith("understudy.")
    ]
    transforms = ", ".join(f"`{name}`" for name in ours)
    parts = [_ABOUT, f"## Transforms\n\n{transforms}\n", "## Calls\n", *calls, "\n## Pages\n", *pages]
    return "\n".join(parts) + "\n"


def _line(name: str) -> str:
    """A name with its signature and the first line of its docstring."""
    public = getattr(us, name)
    about = (inspect.getdoc(public) or "").partition("\n")[0]
    return f"- `us.{name}{_signature(public)}`: {about}"


def _signature(public: object) -> str:
    """As one would write it; exceptions are caught, not made, so they have none."""
    if not callable(public) or (isinstance(public, type) and issubclass(public, BaseException)):
        return ""
    shown: list[str] = []
    parameters = inspect.signature(public).parameters.values()
    for one in parameters:
        if one.name.startswith("_"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in shown and not any(s.startswith("*") for s in shown):
            shown.append("*")
        stars = "**" if one.kind is one.VAR_KEYWORD else "*" if one.kind is one.VAR_POSITIONAL else ""
        kind = "" if one.annotation is one.empty else f": {one.annotation}"
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        shown.append(f"{stars}{one.name}{kind}{default}")
    return f"({', '.join(shown)})"


def _default(value: object) -> str:
    """A value as it is written, where it can be."""
    written = repr(value)
    return "…" if written.startswith("<") else written


def _page(path: Path) -> str:
    """A page of the site by its title."""
    page = path.read_text(encoding="utf-8")
    title = re.search(r"^# (.*)$", page, re.M)
    assert title is not None, path
    place = "" if path.stem == "index" else f"{path.stem}/"
    return f"- [{title[1]}](./{place})"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
