"""The teacher's part of the loss: where it looks and what it gives, asked for or kept from another run."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from understudy.data import Batches
from understudy.distil.attention import AttentionTransfer
from understudy.distil.distillation import distillation_loss, output_loss
from understudy.distil.frozen import call, frozen
from understudy.fitting.inputs import of_real_tokens, output_that_matters

from .answers import Answers, question
from .checkpoint import Progress
from .job import Job, model_hash


class Teaching:
    """What a job's teacher adds to the loss; without a teacher, nothing."""

    def __init__(self, job: Job, *, channels_last: bool) -> None:
        recipe, device = job.settings, job.place.device
        self.recipe, self.output_of = recipe, job.output_of
        self.teacher = None if job.teacher is None else _on(device, job.teacher)
        self.attention = None
        if recipe.attention and self.teacher is not None:
            self.attention = AttentionTransfer(
                job.model, self.teacher, taps=recipe.taps or None, beta=recipe.attention, example=job.example
            )
        self.distils = self.teacher is not None and recipe.distillation > 0
        self.answers = self._kept(job, channels_last=channels_last)

    @property
    def alone(self) -> bool:
        """Whether the targets are not looked at."""
        return self.distils and self.recipe.distillation == 1

    def added_to(self, loss: Tensor, x: Any, logits: Tensor, progress: Progress) -> Tensor:
        """The loss of the targets, with the teacher's share of it and where the student should look."""
        if not self.distils and self.attention is None:
            return loss
        if self.answers is None:
            answer = self._ask(x)
        else:
            answer = self.answers.at(progress.epoch, progress.batch, lambda: self._ask(x))
        if self.distils:
            taught, recipe = answer[-1], self.recipe
            mine, theirs = of_real_tokens(logits.float(), x), of_real_tokens(taught, x)
            soft = (
                output_loss(mine, theirs)
                if recipe.distance == "outputs"
                else distillation_loss(mine, theirs, recipe.temperature)
            )
            loss = (1 - recipe.distillation) * loss + recipe.distillation * soft
        if self.attention is not None:
            loss = loss + self.attention.compare(answer[: len(self.attention.taps)])
        return loss

    def problems(self) -> list[str]:
        """What was wrong with answers that were kept, since the last call."""
        return [] if self.answers is None else self.answers.told()

    def close(self) -> None:
        """Let go of the networks."""
        if self.attention is not None:
            self.attention.close()
        if self.answers is not None:
            self.answers.close()

    def _ask(self, x: Any) -> tuple[Tensor, ...]:
        """Its maps, and behind them its output where that is needed; float32."""
        assert self.teacher is not None
        maps: tuple[Tensor, ...] = ()
        if self.attention is not None:
            maps, output = self.attention.ask(x)
        else:
            with frozen(self.teacher):
                output = call(self.teacher, x)
        if not self.distils:
            return maps
        return *maps, output_that_matters(output, self.output_of, "the teacher").float()

    def _kept(self, job: Job, *, channels_last: bool) -> Answers | None:
        """Where answers are kept: for batches that are known to be the same in every run, in one process."""
        batches, taps = job.batches, () if self.attention is None else self.attention.taps
        count = len(taps) + self.distils
        # Of another class of batches nobody knows what decides them.
        if job.keep is None or self.teacher is None or not count or type(batches) is not Batches:
            return None
        if job.place.world_size > 1 or job.output_of is not None:
            return None
        asked = {
            "teacher": model_hash(self.teacher, content=True),
            "structure": f"{type(self.teacher).__module__} {self.teacher}",
            "taps": taps,
            "outputs": self.distils,
            "precision": self.recipe.precision,
            "channels_last": channels_last,
            "device": job.place.device.type,
            "torch": torch.__version__,
        }
        return Answers(job.keep, question(batches, asked), batches.sampler, count)


def _on(device: torch.device, teacher: nn.Module) -> nn.Module:
    """The teacher on a device: itself, or a copy where it lies elsewhere, for it is not ours to move."""
    tensors = [*teacher.parameters(), *teacher.buffers()]
    return teacher if all(one.device == device for one in tensors) else copy.deepcopy(teacher).to(device)
