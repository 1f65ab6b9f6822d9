"""An attention that computes in its own way: it stays closed, and reads the weight of its out_proj."""

from __future__ import annotations

from typing import Any

from torch import nn


class ReadingAttention(nn.MultiheadAttention):
    """Hands the weight of its out_proj to a function and never calls the layer."""

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return super().forward(*inputs, **options)


def reading_encoder(width: int) -> nn.TransformerEncoderLayer:
    """An encoder layer with such an attention."""
    model = nn.TransformerEncoderLayer(width, 2, 2 * width, batch_first=True)
    model.self_attn = ReadingAttention(width, 2, batch_first=True)
    return model
