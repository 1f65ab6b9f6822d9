"""A linear layer around a transform."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn.utils import skip_init

from understudy.transforms import Transform
from understudy.transforms.stages import Product, State

from .dense import Shell
from .layer import Layer, fill_
from .steps import AtRows, AtVectors, Steps, applies_stages, at_rows


class Linear(Layer):
    """y = W x + bias; where it stands in for a look-alike of nn.Linear, `shell` is what that was."""

    has_rows = True

    def __init__(self, transform: Transform, bias: Tensor | None = None, shell: Shell | None = None) -> None:
        super().__init__()
        self.transform = transform
        self.shell = shell
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.in_features, self.out_features = transform.in_features, transform.out_features

    @property
    def weight(self) -> Tensor:
        """W, (out, in), or as a look-alike stores it."""
        matrix = self.matrix()
        return matrix if self.shell is None else self.shell.stored(matrix)

    def matrix(self) -> Tensor:
        """W, (out, in)."""
        return self.transform.matrix()

    def positions(self, x: Tensor) -> int:
        """All leading dimensions of `(..., in)`; a ValueError for any other shape."""
        self.transform.check_width(x)
        return x.numel() // self.in_features

    def keeps_much(self, positions: int) -> bool:  # noqa: ARG002
        """As its transform does."""
        return self.transform.keeps_much

    def forward(self, input: Tensor) -> Tensor:
        """Apply to `(..., in)`."""
        return self._call(input)

    def run(self, state: State, x: Tensor) -> Tensor:
        """Vectors are rows."""
        out = self.execution.apply(self.transform, state, x, rows=True)
        return out if self.bias is None else out + self.bias.to(out.dtype)  # as autocast gives it

    def steps(self, state: State, positions: int) -> Steps | None:
        """One stage after the other, the bias with the last where that is plain."""
        if self.execution.layout == "columns" or not applies_stages(self.transform):
            return None
        weights = [stage.weight for stage in state if isinstance(stage, Product) and stage.plain]
        if len(weights) < len(state):
            rows = at_rows(state, self.bias, positions)
            return (AtVectors(rows, self.out_features, partial(self.run, state)),)
        biases = [*(None for _ in weights[1:]), self.bias]
        return tuple(AtRows(*pair, positions) for pair in zip(weights, biases, strict=True))

    def merged(self) -> nn.Module:
        """The same map as nn.Linear, or as the look-alike that was there."""
        weight = self.matrix()
        if self.shell is not None:
            return self.shell.filled(weight, self.bias)
        linear: nn.Linear = skip_init(
            nn.Linear,
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            device=weight.device,
            dtype=weight.dtype,
        )
        fill_(linear, weight, self.bias)
        return linear
