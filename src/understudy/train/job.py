"""A job: the objects that training needs, made from a recipe or brought by the caller."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from understudy import data as datasets
from understudy.counting.trace import Example
from understudy.data import Augment, DataSet
from understudy.fitting.inputs import OutputOf
from understudy.planning.plan import Plan
from understudy.students.versions import tensors_of

from .answers import Keep
from .config import Inputs
from .optimisers import check_optimiser
from .processes import Processes, join
from .recipe import Recipe
from .student import check_outputs, make_student, make_student_plan
from .teacher import load_teacher, read_inputs

Batch = tuple[Any, Tensor]  # inputs (a tensor, a tuple of arguments, a mapping of named ones) and targets


@runtime_checkable
class BatchSource(Protocol):
    """Batches that begin anywhere: a run that was stopped meets those that it would have met."""

    def __len__(self) -> int:
        """Batches an epoch."""

    def size(self, step: int) -> int:
        """Samples in the batch of this step, all processes together."""

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from step `start` on."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A model to train, and what to train it with and on.

    `batches` and `test_batches` are a `BatchSource`, as `understudy.data` makes them, or anything to iterate
    over again and again that gives (inputs, targets): a DataLoader, a list. `settings` are a recipe, of which
    what names a network, data, a teacher or an optimiser is not looked at where the object is here. `example`
    is an input: to find taps with, and to count what the network costs. `output_of` takes the tensor that
    matters of what both networks return, by default the first of numbers. The model is trained in place; the
    teacher stays as it is.

    >>> import torch
    >>> from understudy.train import Job, Recipe, fit
    >>> student, teacher = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    >>> batches = [(torch.randn(8, 4), torch.randint(2, (8,)))]
    >>> job = Job(student, batches, teacher, settings=Recipe(epochs=3, distillation=0.9))
    >>> fit(job).network is student
    True
    """

    model: nn.Module
    batches: BatchSource | Iterable[Batch]
    teacher: nn.Module | None = None
    test_batches: BatchSource | Iterable[Batch] | None = None
    optimiser: Optimizer | None = None
    settings: Recipe = dataclasses.field(default_factory=Recipe)
    example: Example | None = None
    plan: Plan | None = None
    inputs: Inputs | None = None  # None: as the objects are
    processes: Processes | None = None  # None: this one alone, where the model is
    keep: Keep | None = None  # where the teacher's answers are kept for other runs
    output_of: OutputOf | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, nn.Module):
            raise TypeError(f"model is a {type(self.model).__name__}, not a torch.nn.Module")
        if self.optimiser is not None:
            check_optimiser(self.optimiser, self.model)
        for name, batches in (("batches", self.batches), ("test_batches", self.test_batches)):
            if batches is not None and not isinstance(batches, BatchSource | Iterable):
                raise TypeError(
                    f"{name} is a {type(batches).__name__}: give what (inputs, targets) come from"
                )
            if isinstance(batches, Iterator):
                raise TypeError(
                    f"{name} is an iterator, used up after one epoch: give a list or a DataLoader"
                )
            if name == "batches" and not isinstance(batches, Sized):
                raise TypeError("batches have no length: the schedule needs to know the steps of an epoch")

    @property
    def place(self) -> Processes:
        """The processes that train, and the device of this one."""
        if self.processes is not None:
            return self.processes
        tensors = [*self.model.parameters(), *self.model.buffers()]
        return Processes(0, 1, tensors[0].device if tensors else torch.device("cpu"))

    @property
    def identity(self) -> Inputs:
        """What decides the outcome beside settings: of objects the model's form, the teacher's weights."""
        if self.inputs is not None:
            return self.inputs
        return Inputs(
            teacher="" if self.teacher is None else f"given:{model_hash(self.teacher, content=True)}",
            plan=f"given:{model_hash(self.model, content=False)}",
        )


def model_hash(model: nn.Module, *, content: bool) -> str:
    """Follows from the names, shapes and types of all tensors, and from their values with `content`."""
    sha256 = hashlib.sha256()
    for name, tensor in tensors_of(model).items():
        sha256.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if content:
            whole = tensor.detach().cpu().contiguous()
            sha256.update(whole.reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()[:16]


def as_batches(given: BatchSource | Iterable[Batch], processes: Processes) -> BatchSource:
    """Batches that begin anywhere, from whatever gives (inputs, targets)."""
    if isinstance(given, BatchSource):
        return given
    if processes.world_size > 1:
        raise ValueError("with several processes batches must know their shares: give those of a DataSet")
    return _Given(given, processes.device)


class _Given:
    """An iterable of the caller's; the batches before the first are read and left."""

    def __init__(self, batches: Iterable[Batch], device: torch.device) -> None:
        self.batches, self.device = batches, device

    def __len__(self) -> int:
        assert isinstance(self.batches, Sized)
        return len(self.batches)

    def size(self, step: int) -> int:
        raise NotImplementedError(f"the size of batch {step} is known when it comes")

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:  # noqa: ARG002 they are the caller's
        for step, batch in enumerate(self.batches):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise ValueError(
                    f"batch {step} is a {type(batch).__name__}, not a pair of inputs and targets"
                )
            if step >= start:
                inputs, targets = tree_map_only(Tensor, lambda tensor: tensor.to(self.device), tuple(batch))
                yield inputs, targets


def load_data(recipe: Recipe, folder: Path | None, *, download: bool = False) -> DataSet:
    """The data of a recipe, cut to as many training images as it asks for.

    >>> from understudy.train import load_data, load_recipe
    >>> digits = load_data(load_recipe("demo", {"train_images": 100}), None)
    >>> digits.train_size, digits.test_size
    (100, 500)
    """
    data = datasets.load(
        recipe.data, folder, download=download, mean=recipe.mean or None, std=recipe.std or None
    )
    return data.take(train=recipe.train_images) if recipe.train_images else data


def batches_to_test(recipe: Recipe, data: DataSet, device: torch.device) -> BatchSource:
    """All test images, in order."""
    return data.test_batches(max(recipe.batch_size, 500), device=device, workers=recipe.workers)


def prepare(
    recipe: Recipe,
    *,
    data_folder: Path | None = None,
    download: bool = False,
    device: str | None = None,
    plan: Plan | None = None,
    trust: bool = False,
    keep: Keep | None = None,
) -> Job:
    """What a recipe names, as objects; `plan` is the plan of its request, where it is made already.

    With `trust`, a function that the folder of its teacher names may be called. `keep` says where the
    teacher's answers are kept for other runs.

    >>> from understudy.train import load_recipe, prepare
    >>> job = prepare(load_recipe("demo", {"train_images": 100, "batch_size": 50}))
    >>> type(job.model).__name__, len(job.batches), tuple(job.example.shape)
    ('WideResNet', 2, (1, 3, 8, 8))
    """
    processes = join(device)
    inputs = read_inputs(recipe)
    data = load_data(recipe, data_folder, download=download)
    batches = data.train_batches(
        recipe.batch_size,
        seed=recipe.seed,
        augment=Augment(
            padding=0 if recipe.resized_crop else recipe.crop_padding,
            flip=recipe.flip,
            cutout=recipe.cutout,
            resized_crop=recipe.resized_crop,
        ),
        rank=processes.rank,
        world_size=processes.world_size,
        device=processes.device,
        workers=recipe.workers,
    )
    classes = len(data.classes)
    teacher = load_teacher(recipe, classes, trust=trust)
    plan = plan or make_student_plan(recipe, classes, data.example)
    network = make_student(recipe, classes, plan, teacher).to(processes.device)
    check_outputs(network, data)
    if teacher is not None and recipe.distillation:
        check_outputs(teacher, data)
    return Job(
        model=network,
        batches=batches,
        teacher=teacher,
        test_batches=batches_to_test(recipe, data, processes.device),
        settings=recipe,
        example=data.example,
        plan=plan,
        inputs=inputs,
        processes=processes,
        keep=keep,
    )
