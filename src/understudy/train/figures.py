"""What a run leaves behind as records: the figures of an epoch, of a test, how it stands, what came out."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Errors:
    """A network on test samples: the mean loss, and the error in percent where the targets are classes.

    >>> import torch
    >>> from understudy.train import evaluate
    >>> errors = evaluate(torch.nn.Identity(), [(torch.eye(4), torch.tensor([0, 1, 2, 0]))])
    >>> errors.test_error, errors.test_top5_error, errors.test_images
    (25.0, 0.0, 4)
    """

    test_loss: float
    test_error: float | None
    test_top5_error: float | None
    test_images: int


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One epoch, a line of metrics.jsonl; what was not measured is None.

    >>> from understudy.train import Epoch
    >>> epoch = Epoch(epoch=0, step=12, learning_rate=0.1, train_loss=1.25, train_error=40.0)
    >>> print(epoch)
    loss 1.250, train error 40.00 %
    >>> epoch.numbers()["step"]
    12
    """

    epoch: int
    step: int
    learning_rate: float
    train_loss: float
    train_error: float | None = None
    errors: Errors | None = None
    seconds: float = 0.0

    def numbers(self) -> dict[str, float]:
        """By name, those of the test among them; without the time and what was not measured."""
        values = {key: value for key, value in vars(self).items() if key not in ("errors", "seconds")}
        values |= {} if self.errors is None else vars(self.errors)
        return {key: value for key, value in values.items() if value is not None}

    def __str__(self) -> str:
        words = [f"loss {self.train_loss:.3f}"]
        if self.train_error is not None:
            words.append(f"train error {self.train_error:.2f} %")
        if self.errors is not None:
            if self.errors.test_error is None or self.errors.test_top5_error is None:
                words.append(f"test loss {self.errors.test_loss:.3f}")
            else:
                words.append(f"test error {self.errors.test_error:.2f} %")
                words.append(f"top-5 {self.errors.test_top5_error:.2f} %")
        return ", ".join(words)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came out of a run, result.json: its last epoch, and what its network costs where that is known."""

    epoch: Epoch | None = None
    params: int | None = None
    mult_adds: int | None = None
    ideal_mult_adds: int | None = None
    bytes: int | None = None

    @property
    def errors(self) -> Errors | None:
        """Of the last epoch, where it was tested."""
        return None if self.epoch is None else self.epoch.errors


Standing = Literal["new", "running", "finished", "diverged", "failed"]


@dataclasses.dataclass(frozen=True)
class RunStatus:
    """How a run stands, status.json: since when, and where and why it stopped if it did not go well."""

    status: Standing = "new"
    time: int = 0
    step: int | None = None
    reason: str = ""
