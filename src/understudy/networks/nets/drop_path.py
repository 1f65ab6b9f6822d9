"""Drop-path: a whole branch of a network is left out for some samples while it trains."""

import torch
from torch import Tensor, nn


class DropPath(nn.Module):
    """x · m / (1 − p) in training, with one m ~ Bernoulli(1 − p) a sample, so that the expectation stays x.

    A training loop may ramp `probability`; it has no effect in eval mode.
    """

    def __init__(self, probability: float = 0.0) -> None:
        super().__init__()
        self.probability = probability

    @property
    def probability(self) -> float:
        """How often a sample loses the branch, in [0, 1)."""
        return self._probability

    @probability.setter
    def probability(self, value: float) -> None:
        if not 0.0 <= value < 1.0:
            raise ValueError(f"drop-path probability {value} is not in [0, 1)")
        self._probability = value

    def forward(self, x: Tensor) -> Tensor:
        """(B, …) → the same shape."""
        if not self.training or self.probability == 0.0:
            return x
        keep = 1.0 - self.probability
        sizes = (x.shape[0], *[1] * (x.dim() - 1))
        mask = torch.empty(sizes, dtype=x.dtype, device=x.device).bernoulli_(keep)
        return x * mask / keep

    def extra_repr(self) -> str:
        """As torch prints it."""
        return f"probability={self.probability:g}"
