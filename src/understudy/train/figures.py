"""What is measured while a network trains: the figures of an epoch, and those of a test."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Errors:
    """A network on test samples: the mean loss, and the error in percent where the targets are classes."""

    test_loss: float
    test_error: float | None
    test_top5_error: float | None
    test_images: int


@dataclasses.dataclass(frozen=True)
class Epoch:
    """One epoch, a line of metrics.jsonl; what was not measured is None, and left out there."""

    epoch: int
    step: int
    learning_rate: float
    train_loss: float
    train_error: float | None = None
    errors: Errors | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Flat, as JSON can hold it; without the time, which is no part of a result."""
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
