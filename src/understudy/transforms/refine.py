"""A better fit in a metric: block descent for any W that is linear in each of its parameters alone."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp

from understudy._util.full_precision import full_precision

from .metric import Metric

_ENOUGH = 1e-3  # a sweep that gains a smaller share of the loss is the last
_NEAR = 1e-2  # of the first residual: a parameter is found no nearer than this, since the next sweep goes on
_ROUNDING = 1e-6  # of a change of W: so near are those of one parameter to each other, if W is linear in it


@dataclasses.dataclass(frozen=True)
class Effort:
    """How often all parameters are visited, and how many steps of conjugate gradients each gets."""

    sweeps: int
    steps: int
    work: int = 4 * 10**11  # mult-adds of all steps with the whole Σ; above them they see what leads in it
    judged: torch.dtype = torch.float64  # in which errors are weighed


FULL = Effort(3, 20)
QUICK = Effort(2, 8, work=10**10)  # within a few hundredths of what the full effort reaches
ROUGH = Effort(2, 4, work=4 * 10**9, judged=torch.float32)  # to compare: within a few hundredths of QUICK
_EFFORT: ContextVar[Effort] = ContextVar("effort", default=FULL)


@contextlib.contextmanager
def making(effort: Effort) -> Iterator[None]:
    """Have all fits within make this effort, plain and data-aware ones, of whatever family."""
    before = _EFFORT.set(effort)
    try:
        yield
    finally:
        _EFFORT.reset(before)


class Formed(nn.Module):
    """W as what a call returns, so that it can be taken as a function of its parameters."""

    def __init__(self, transform: nn.Module, form: Callable[[], Tensor]) -> None:
        super().__init__()
        self.transform, self.form = transform, form

    def forward(self) -> Tensor:
        """W."""
        return self.form()


@torch.no_grad()
@full_precision()
def refine_(
    transform: nn.Module,
    form: Callable[[], Tensor],
    target: Tensor,
    metric: Metric | None,
) -> None:
    """Lower tr(G (W − target) Σ (W − target)ᵀ), W = form(), one parameter at a time; it never rises.

    Without a metric, ‖W − target‖².

    With the others held, W = L(θ) is linear in a parameter θ, but for a constant, and the best one solves
    Lᵀ(G L(θ) Σ) = Lᵀ(G target Σ). L and its adjoint are those of forming the matrix, so every family has this
    fit, whoever wrote it; one that is not linear in a whole parameter keeps its plain fit. What steps find is
    a direction; how far to go there is told by the whole metric. `making` says how much is done.
    """
    effort = _EFFORT.get()
    formed = Formed(transform, form)
    values = {name: value.detach().double() for name, value in formed.named_parameters()}
    target = target.double()
    weigh = _weighing(metric, effort.judged)
    steps = effort.sweeps * effort.steps * len(values)
    is_too_much = steps * target.numel() * sum(target.shape) > effort.work
    weigh_step = (_weighing_the_leading if is_too_much else _weighing)(metric, torch.float32)

    def former(dtype: torch.dtype, name: str = "") -> Callable[..., Tensor]:
        """W as a function of the parameter of this name, the others held."""
        held = {**dict(formed.named_buffers()), **values}
        cast = {key: value.to(dtype) if value.is_floating_point() else value for key, value in held.items()}

        def made(*changed: Tensor) -> Tensor:
            given = {**cast, **({name: changed[0]} if changed else {})}
            matrix: Tensor = functional_call(formed, given, ())
            return matrix

        return made

    error = target - former(torch.float64)()
    weighed = weigh(error)
    best = float((error * weighed).sum())
    for _ in range(effort.sweeps):
        before = best
        for name in values:
            precise, single = former(torch.float64, name), former(torch.float32, name)
            with torch.enable_grad():
                matrix, adjoint = vjp(precise, values[name])[:2]
                missing = adjoint(weighed)[0]
            change = _change(single, values[name], missing, weigh_step, effort.steps)
            moved = precise(values[name] + change) - matrix
            weighed_move = weigh(moved)
            curvature = float((moved * weighed_move).sum())
            step = float((moved * weighed).sum()) / curvature if curvature > 0 else 0.0
            found = values[name] + step * change
            if not _is_near(precise(found) - matrix, step * moved):
                continue  # W is not linear in this parameter
            values[name], error, weighed = found, error - step * moved, weighed - step * weighed_move
            best = float((error * weighed).sum())
        if before - best <= _ENOUGH * before:
            break
    for name, parameter in formed.named_parameters():
        parameter.copy_(values[name])


def _weighing(metric: Metric | None, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """E → G E Σ up to a factor: both are scaled, so that single precision holds them."""
    if metric is None:
        return lambda error: error
    sigma = _scaled(metric.covariance).to(dtype)
    if metric.gradient is None:
        return lambda error: (error.to(dtype) @ sigma).to(error)
    gram = _scaled(metric.gradient).to(dtype)
    return lambda error: (gram @ (error.to(dtype) @ sigma)).to(error)


def _weighing_the_leading(metric: Metric | None, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """The same by the leading directions of Σ, all others being worth the same."""
    if metric is None:
        return lambda error: error
    size = metric.covariance.diagonal().mean()
    basis, above = metric.leading.basis.to(dtype), (metric.leading.above / size).to(dtype)
    rest = metric.leading.rest / float(size)
    gram = None if metric.gradient is None else _scaled(metric.gradient).to(dtype)

    def weighed(error: Tensor) -> Tensor:
        seen = error @ basis * above
        return (seen if gram is None else gram @ seen) @ basis.T + rest * error

    return weighed


def _scaled(moment: Tensor) -> Tensor:
    """With a mean eigenvalue of 1."""
    return moment / moment.diagonal().mean()


def _is_near(one: Tensor, other: Tensor) -> bool:
    """Whether two changes of W are the same but for rounding."""
    return bool((one - other).norm() <= _ROUNDING * other.norm())


def _change(
    form: Callable[[Tensor], Tensor],
    start: Tensor,
    missing: Tensor,
    weigh: Callable[[Tensor], Tensor],
    steps: int,
) -> Tensor:
    """What is to be added to a parameter, W = L(θ) + constant: L and its adjoint in single precision.

    What is `missing`, Lᵀ(G (target − W) Σ), was told in double precision; the way there nobody goes to its
    end. It is gone at the size of the parameter: the way to what is twice as large is the same.
    """
    size = missing.abs().max() / (start.abs().max() or 1.0)
    if not (size > 0 and size.isfinite()):
        return torch.zeros_like(missing)
    wanted = (missing / size).float()
    with torch.enable_grad():
        constant, adjoint = vjp(form, torch.zeros_like(wanted))[:2]

    def operator(value: Tensor) -> Tensor:
        image: Tensor = adjoint(weigh(form(value) - constant))[0]
        return image

    return conjugate_gradients(operator, wanted, steps).double() * size


def conjugate_gradients(operator: Callable[[Tensor], Tensor], wanted: Tensor, steps: int) -> Tensor:
    """Minimise ½ v·Av − v·w from 0, A symmetric and not negative: no step raises it."""
    x = torch.zeros_like(wanted)
    residual, direction = wanted.clone(), wanted.clone()
    energy = first = float(residual.square().sum())
    for _ in range(steps):
        if energy <= _NEAR**2 * first or energy == 0:
            break
        image = operator(direction)
        curvature = float((direction * image).sum())
        if not curvature > 0:
            break
        step = energy / curvature
        x += step * direction
        residual -= step * image
        before, energy = energy, float(residual.square().sum())
        direction = residual + energy / before * direction
    return x
