"""A better fit in a metric: block descent for any W that is linear in each of its parameters alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp

from .base import Transform
from .metric import Metric

_SWEEPS = 3
_STEPS = 20  # of conjugate gradients for one parameter
_ENOUGH = 1e-3  # a sweep that gains a smaller share of the loss is the last


class _Formed(nn.Module):
    """W as what a call returns, so that it can be taken as a function of its parameters."""

    def __init__(self, transform: Transform) -> None:
        super().__init__()
        self.transform = transform

    def forward(self) -> Tensor:
        return self.transform.matrix()


@torch.no_grad()
def refine_(transform: Transform, target: Tensor, metric: Metric) -> None:
    """Lower tr(G (W − target) Σ (W − target)ᵀ), one parameter at a time; it never rises.

    With the others held, W = L(θ) is linear in a parameter θ, so the best one solves Lᵀ(G L(θ) Σ) = Lᵀ(G W Σ).
    L and its adjoint are those of forming the matrix, so every family has this fit, whoever wrote it.
    """
    dtype, device = torch.float64, target.device
    formed = _Formed(transform)
    values = {name: value.detach().to(dtype) for name, value in formed.named_parameters()}
    buffers = dict(formed.named_buffers())
    target = target.to(dtype)

    def form(changed: dict[str, Tensor]) -> Tensor:
        made: Tensor = functional_call(formed, {**buffers, **values, **changed}, ())
        return made

    def weighted(error: Tensor) -> Tensor:
        inner = error @ metric.covariance.to(device)
        return inner if metric.gradient is None else metric.gradient.to(device) @ inner

    def loss(formed_matrix: Tensor) -> float:
        error = formed_matrix - target
        return float((weighted(error) * error).sum())

    best = loss(form({}))
    for _ in range(_SWEEPS):
        before = best
        for name in values:
            with torch.enable_grad():
                _, adjoint = vjp(lambda value, name=name: form({name: value}), values[name])
            wanted = adjoint(weighted(target))[0]

            def operator(value: Tensor, name: str = name) -> Tensor:
                out: Tensor = adjoint(weighted(form({name: value})))[0]  # noqa: B023
                return out

            found = conjugate_gradients(values[name], operator, wanted, _STEPS)
            now = loss(form({name: found}))
            if now < best:
                values[name], best = found, now
        if before - best <= _ENOUGH * before:
            break
    for name, parameter in formed.named_parameters():
        parameter.copy_(values[name])


def conjugate_gradients(
    start: Tensor, operator: Callable[[Tensor], Tensor], wanted: Tensor, steps: int, tolerance: float = 1e-6
) -> Tensor:
    """Minimise ½ v·Av − v·w from `start`, A symmetric and not negative: no step raises it."""
    x = start.clone()
    residual = wanted - operator(x)
    direction = residual.clone()
    energy = first = float(residual.square().sum())
    for _ in range(steps):
        if energy <= tolerance**2 * first or energy == 0:
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
