"""How a student of a trained network answers: its accuracy, and how much it agrees with the original."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy._util.timing import time_in_turns
from understudy.compressions import Footprint, Latency, Quality
from understudy.counting.operations import UnknownOperationError
from understudy.fitting.inputs import Batch, DataError, OutputOf, read_batches
from understudy.fitting.running import run
from understudy.students.cost import cost
from understudy.students.file import file_size

_ROUNDS, _SECONDS = 1000, 1.0  # of small networks many rounds: the best of a few is noise
_ALL = 2**62


class Yardstick:
    """The original on test inputs, run once; every student is held against it.

    `labels` says whether those that the inputs come with are what the network's outputs stand for; there is
    no accuracy without them, nor where `classes` says that there are more or fewer of them than outputs. Of
    the inputs the first `samples` are taken, by default all.
    """

    def __init__(
        self,
        original: nn.Module,
        test: Iterable[Any],
        *,
        labels: bool = True,
        classes: int | None = None,
        samples: int | None = None,
        output_of: OutputOf | None = None,
    ) -> None:
        self.original, self.output_of = original, output_of
        self.batches = list(_first(test, _ALL if samples is None else samples))
        self.wanted = [self._outputs(original, batch) for batch in self.batches]
        if not self.wanted:
            raise DataError("there is nothing to test on: no batch came")
        first = self.wanted[0]
        self.is_classifier = first.dim() == 2 and first.shape[1] > 1 and not _are_directions(first)
        # One number a sample has no direction: all samples together, about their mean, do.
        numbers = [wanted.flatten() for wanted in self.wanted if wanted.numel() == len(wanted)]
        self.mean = torch.cat(numbers).double().mean() if len(numbers) == len(self.wanted) else None
        self.has_labels = labels and self.is_classifier and classes in (None, first.shape[1])
        self.quality = self.of(original)

    @torch.no_grad()
    def _outputs(self, model: nn.Module, batch: Batch) -> Tensor:
        """What matters of a network's outputs; of tokens that only fill up a batch, nothing."""
        return run(model.eval(), batch, self.output_of).float().cpu()

    def of(self, model: nn.Module) -> Quality:
        """How a network answers; it is left in evaluation mode."""
        count = labelled = right = five = same = 0
        cosines = 0.0
        products = torch.zeros(3, dtype=torch.float64)
        for batch, wanted in zip(self.batches, self.wanted, strict=True):
            given = wanted if model is self.original else self._outputs(model, batch)
            count += batch.size
            mine, theirs = (one.reshape(len(one), -1).double() for one in (given, wanted))
            if self.mean is None:
                cosines += float(F.cosine_similarity(mine, theirs).sum())
            else:
                mine, theirs = mine - self.mean, theirs - self.mean
                products += torch.stack([(mine * theirs).sum(), mine.square().sum(), theirs.square().sum()])
            if self.is_classifier:
                same += int((given.argmax(1) == wanted.argmax(1)).sum())
            if self.has_labels and batch.labels is not None:
                hits = given.topk(min(5, given.shape[1])).indices == batch.labels.cpu()[:, None]
                right, five = right + int(hits[:, 0].sum()), five + int(hits.sum())
                labelled += batch.size
        if self.mean is not None:
            across, own, wanted_own = products.tolist()
            is_same = own == wanted_own == across  # as of a constant, which has no direction either
            cosines = count * across / math.sqrt(own * wanted_own) if own * wanted_own else count * is_same
        is_whole = labelled == count
        return Quality(
            samples=count,
            accuracy=_percent(right, count) if is_whole else None,
            top5_accuracy=_percent(five, count) if is_whole and self.wanted[0].shape[1] > 5 else None,
            agreement=_percent(same, count) if self.is_classifier else None,
            cosine=round(cosines / count, 6) if math.isfinite(cosines) else 0.0,
        )


def _first(test: Iterable[Any], samples: int) -> Iterator[Batch]:
    """Batches of the first so many samples; read once, since a loader may give others the next time."""
    for item in test:
        batch = read_batches([item], samples)[0]
        samples -= batch.size
        yield batch
        if samples <= 0:
            return


def _are_directions(outputs: Tensor) -> bool:
    """Whether all rows are of length 1, as those of an encoder: their largest entry is no answer."""
    lengths = outputs.norm(dim=1)
    return bool(torch.allclose(lengths, torch.ones_like(lengths), atol=1e-3))


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 4)


def footprint(model: nn.Module, example: Batch) -> tuple[Footprint, str]:
    """What a network costs for one input, and why its mult-adds are not known, where they are not."""
    params = sum(parameter.numel() for parameter in model.parameters())
    try:
        price = cost(model, example.inputs, meta=False)
    except UnknownOperationError as error:
        return Footprint(params, None, None, file_size(model)), f"mult-adds are not counted: {error}"
    return Footprint(params, price.mult_adds, price.ideal_mult_adds, price.bytes), ""


def latency(student: nn.Module, original: nn.Module, example: Batch) -> Latency:
    """The two in turns, on a copy of one input."""
    device = next((parameter.device for parameter in student.parameters()), torch.device("cpu"))
    copied = example.to(device)

    @torch.inference_mode()
    def call(model: nn.Module) -> None:
        copied.forward(model)

    taken = time_in_turns(
        {"student": lambda: call(student.eval()), "original": lambda: call(original.eval())},
        rounds=_ROUNDS,
        seconds=_SECONDS,
        wait=torch.cuda.synchronize if device.type == "cuda" else lambda: None,
    )
    return Latency(
        student=round(1000 * taken["student"].best, 4),
        original=round(1000 * taken["original"].best, 4),
        threads=torch.get_num_threads(),
    )
