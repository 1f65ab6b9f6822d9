"""Run two networks of one structure side by side, so that each layer can be seen with both of its inputs.

The original runs in a second thread and stops before every layer that is looked at; the student, in the
calling thread, comes to the same layer, which may then be changed, and both go on. Each network runs once,
whatever its depth.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from understudy._util.modules import first_input

from .inputs import Batch, DataError
from .running import pass_through

Visit = Callable[
    [str, Tensor, Tensor], None
]  # path, the input of the original's layer, that of the student's


class ApartError(DataError):
    """The two networks do not call the same layers in the same order, with inputs of the same shape."""


class _StopError(Exception):
    """The student has ended, for whatever reason: so does the original."""


def lockstep(
    original: nn.Module, student: nn.Module, batch: Batch, paths: Sequence[str], visit: Visit
) -> None:
    """Run both on a batch; before every call of a layer at one of `paths`, `visit` sees both inputs."""
    arrived: queue.Queue[tuple[str, Tensor] | BaseException | None] = queue.Queue()
    failed: list[Exception] = []  # of a visit, which is not the network's fault
    go = threading.Semaphore(0)
    stop = threading.Event()

    def pause(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            arrived.put((path, first_input(args, kwargs)))
            go.acquire()
            if stop.is_set():
                raise _StopError

        return hook

    def meet(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            other = arrived.get()
            if isinstance(other, BaseException):
                raise other
            if other is None or other[0] != path:
                there = "its end" if other is None else repr(other[0])
                raise ApartError(f"the networks run apart: the student at {path!r}, the original at {there}")
            try:
                visit(path, other[1], first_input(args, kwargs))
            except Exception as error:
                failed.append(error)
                raise
            go.release()

        return hook

    def run_original() -> None:
        try:
            with torch.no_grad():
                pass_through(original, batch)
            arrived.put(None)
        except BaseException as error:
            if not stop.is_set():
                arrived.put(error)  # for the student's thread to raise

    handles = [
        network.get_submodule(path).register_forward_pre_hook(hook(path), with_kwargs=True)
        for network, hook in ((original, pause), (student, meet))
        for path in paths
    ]
    thread = threading.Thread(target=run_original, daemon=True)
    thread.start()
    try:
        with torch.no_grad():
            pass_through(student, batch)
    except DataError:
        if failed:
            raise failed[0] from None
        raise
    finally:
        stop.set()
        go.release()
        thread.join()
        for handle in handles:
            handle.remove()
