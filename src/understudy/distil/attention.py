"""Attention transfer: the student looks where the teacher looks."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy._util.guard import the_amount, the_network
from understudy.counting.trace import Example, trace
from understudy.fitting.inputs import first_tensor

from .frozen import call, frozen

if TYPE_CHECKING:
    from typing_extensions import Self


def attention_map(activation: Tensor) -> Tensor:
    """Mean over channels of the square, flattened, of unit length a sample.

    Images (B, C, H, W) have a value a pixel, sequences of tokens (B, T, C) one a token.
    """
    if activation.dim() < 3:
        shape = tuple(activation.shape)
        raise ValueError(f"an activation of {shape} has no map: images (B, C, H, W) or tokens (B, T, C) have")
    channels = 2 if activation.dim() == 3 else 1
    return F.normalize(activation.square().mean(dim=channels).flatten(1), dim=1)


class AttentionTransfer:
    """β · (3 / taps) · Σ MSE(student map, teacher map) over the outputs of some modules.

    `taps` are module paths, the same in both networks; by default those that `find_taps` finds. Calling it on
    a batch runs the teacher, in evaluation mode and without gradients, and compares with what the student's
    modules gave in the forward pass just before; the teacher is left in the modes that it was in. A batch is
    a tensor, a tuple of arguments, or a mapping of named ones. Used as a block, it lets go at its end.

    >>> import torch, understudy as us
    >>> x, teacher = torch.randn(2, 3, 16, 16), us.create_model("wrn_10_1")
    >>> student = us.substitute(teacher, us.plan(teacher, "shuffle", scale=0.5), init="fresh")
    >>> with us.AttentionTransfer(student, teacher, taps=["stage1", "stage2"]) as look:
    ...     loss = student(x).square().mean() + look(x)[0]
    >>> loss.backward()

    """

    def __init__(
        self,
        student: nn.Module,
        teacher: nn.Module,
        *,
        taps: Sequence[str] | None = None,
        beta: float = 1000.0,
        example: Example | None = None,
    ) -> None:
        the_network(student, "student")
        the_network(teacher, "teacher")
        self.beta = the_amount("beta", beta)
        if taps is None:
            if example is None:
                raise ValueError("give the taps, or an example input to find them with")
            taps = find_taps(teacher, example)
        if not taps:
            raise ValueError("attention transfer needs at least one tap")
        self.teacher = teacher
        self.taps = tuple(taps)
        if example is not None:
            _check_sizes(student, teacher, self.taps, example)
        self._student_outputs: dict[str, Any] = {}
        self._teacher_outputs: dict[str, Any] = {}
        tapped = [
            (_module(network, path), path, outputs)
            for network, outputs in ((student, self._student_outputs), (teacher, self._teacher_outputs))
            for path in self.taps
        ]
        self._handles = [
            module.register_forward_hook(_keep(path, outputs)) for module, path, outputs in tapped
        ]

    def __call__(self, batch: Example) -> tuple[Tensor, Any]:
        """The loss, and the teacher's own output for distillation."""
        try:
            self._check_student()
            maps, teacher_output = self.ask(batch)
            return self.compare(maps), teacher_output
        finally:
            self._student_outputs.clear()

    def ask(self, batch: Example) -> tuple[tuple[Tensor, ...], Any]:
        """The teacher's map at each tap, float32 (B, pixels), and its output."""
        try:
            with frozen(self.teacher):
                teacher_output = call(self.teacher, batch)
                return tuple(self._map("the teacher", self._teacher_outputs, path) for path in self.taps), (
                    teacher_output
                )
        finally:
            self._teacher_outputs.clear()

    def compare(self, maps: Sequence[Tensor]) -> Tensor:
        """The loss, given the maps that `ask` gave for the batch that the student has just seen."""
        try:
            self._check_student()
            losses = [self._loss_at(path, wanted) for path, wanted in zip(self.taps, maps, strict=True)]
        finally:
            self._student_outputs.clear()
        return self.beta * 3 / len(self.taps) * torch.stack(losses).sum()

    def _check_student(self) -> None:
        for path in self.taps:
            if path not in self._student_outputs:
                raise RuntimeError(f"nothing came out of the student at {path!r}: run it on the batch first")

    def _map(self, network: str, outputs: dict[str, Any], path: str) -> Tensor:
        if path not in outputs:
            raise RuntimeError(f"nothing came out of {network} at {path!r}: its forward pass goes elsewhere")
        return attention_map(first_tensor(outputs[path], f"{network} at {path!r}").float())

    def _loss_at(self, path: str, wanted: Tensor) -> Tensor:
        mine = self._map("the student", self._student_outputs, path)
        if mine.shape != wanted.shape:
            raise ValueError(
                f"at {path!r} the student's map is {tuple(mine.shape)}, the teacher's {tuple(wanted.shape)}"
            )
        return F.mse_loss(mine, wanted)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()


def find_taps(model: nn.Module, example: Example) -> list[str]:
    """The last block at each image size: where stages end. A block holds at least two weight matrices.

    A chain of blocks of several sizes (`features`, `blocks`) is no block itself.
    """
    record = trace(model, example)
    sizes: dict[str, tuple[int, ...]] = {}  # of the blocks' images
    for path, module in model.named_modules():
        shapes = record.outputs.get(path, [])
        if (
            sum(parameter.dim() > 1 for parameter in module.parameters()) > 1
            and shapes
            and len(shapes[-1]) == 4
        ):
            sizes[path] = shapes[-1][2:]
    last: dict[tuple[int, ...], str] = {}
    for path, size in sizes.items():
        module = model.get_submodule(path)
        within = {sizes.get(f"{path}.{name}", size) for name, _ in module.named_children()}
        is_chain = isinstance(module, nn.Sequential) and len(within) > 1
        is_inner = any(path.startswith(f"{outer}.") for outer in last.values())
        if path and not is_inner and not is_chain:
            last[size] = path
    if not last:
        raise ValueError(f"{type(model).__name__} has no block that gives images: name the taps")
    return list(last.values())


def _check_sizes(student: nn.Module, teacher: nn.Module, taps: Sequence[str], example: Example) -> None:
    """Raise a ValueError unless the maps of both networks have the same pixels at every tap."""
    ours, theirs = (trace(network, example).outputs for network in (student, teacher))
    for path in taps:
        sizes = [_map_size(outputs[path][-1]) for outputs in (ours, theirs) if outputs.get(path)]
        if len(set(sizes)) > 1:
            raise ValueError(f"at {path!r} the student's image is {sizes[0]}, the teacher's {sizes[1]}")


def _map_size(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[1:2] if len(shape) == 3 else shape[2:]


def _module(model: nn.Module, path: str) -> nn.Module:
    try:
        return model.get_submodule(path)
    except AttributeError as error:
        raise ValueError(f"{type(model).__name__} has no module {path!r} to tap") from error


def _keep(path: str, outputs: dict[str, Any]) -> Any:
    def hook(_: nn.Module, __: Any, output: Any) -> None:
        outputs[path] = output

    return hook
