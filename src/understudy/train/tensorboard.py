"""The curves of a run for TensorBoard; metrics.jsonl holds the same figures without it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class TensorBoard:
    """Writes one point a figure and epoch."""

    def __init__(self, folder: Path, step: int) -> None:
        """Go on from `step`; what an earlier, killed process wrote beyond it is taken back."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard needs the extra: pip install 'understudy[track]'") from error
        self._writer = SummaryWriter(str(folder), purge_step=step)

    def add(self, record: Mapping[str, float]) -> None:
        """The figures of one epoch: train_loss as train/loss, and so on."""
        for key, value in record.items():
            part, _, name = key.partition("_")
            if part in ("train", "test") and name != "images":
                self._writer.add_scalar(f"{part}/{name}", value, record["step"])
        self._writer.add_scalar("learning_rate", record["learning_rate"], record["step"])
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
