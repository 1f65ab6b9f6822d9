"""Multi-head attention whose projections are layers that it calls, so that each can be substituted."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from understudy._util.modules import adopt

PROJECTIONS = ("q_proj", "k_proj", "v_proj")


class Attention(nn.MultiheadAttention):
    """nn.MultiheadAttention with its packed matrix taken apart: q_proj, k_proj, v_proj and out_proj.

    It computes the same, masks, weights and dropout included, and never hands its weights to a fused kernel.
    """

    q_proj: nn.Module
    k_proj: nn.Module
    v_proj: nn.Module

    def __init__(self, like: nn.MultiheadAttention, out_proj: nn.Module | None = None) -> None:
        """Made of an attention's own tensors, not of copies."""
        nn.Module.__init__(self)
        self.embed_dim, self.kdim, self.vdim = like.embed_dim, like.kdim, like.vdim
        self.num_heads, self.head_dim = like.num_heads, like.head_dim
        self.dropout, self.batch_first = like.dropout, like.batch_first
        self.bias_k, self.bias_v, self.add_zero_attn = like.bias_k, like.bias_v, like.add_zero_attn
        self._qkv_same_embed_dim = False  # by which nn.TransformerEncoderLayer knows to call it
        packed_bias = like._parameters.get("in_proj_bias")
        biases = [None] * 3 if packed_bias is None else _parts(packed_bias)
        for name, weight, bias in zip(PROJECTIONS, _matrices(like), biases, strict=True):
            self.add_module(name, _linear(weight, bias))
        self.add_module("out_proj", like.out_proj if out_proj is None else out_proj)
        adopt(like, self)

    @property
    def in_proj_weight(self) -> Tensor | None:  # type: ignore[override]
        """The packed matrix, formed for whoever reads it; None where keys or values have another width."""
        weights = [self.get_submodule(name).weight for name in PROJECTIONS]
        same = self.kdim == self.vdim == self.embed_dim
        return torch.cat([weight for weight in weights if isinstance(weight, Tensor)]) if same else None

    @property
    def in_proj_bias(self) -> Tensor | None:  # type: ignore[override]
        """The packed bias; None where there is none."""
        biases = [self.get_submodule(name).bias for name in PROJECTIONS]
        found = [bias for bias in biases if isinstance(bias, Tensor)]
        return torch.cat(found) if found else None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As nn.MultiheadAttention."""
        if query.dim() not in (2, 3) or not query.dim() == key.dim() == value.dim():
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, key, value))
            raise ValueError(f"query, key and value are all 2-D or all 3-D, not {shapes}")
        if is_causal and attn_mask is None:
            raise ValueError("is_causal is a hint about attn_mask, which is None")
        batched = query.dim() == 3
        if not batched:
            query, key, value = (tensor.unsqueeze(0) for tensor in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)  # (batch, length, embed)
        if is_causal and key_padding_mask is None and not need_weights:
            mask = None
        else:
            mask, is_causal = self._mask(attn_mask, key_padding_mask, q, k), False
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (
                torch.cat([x, b.expand(len(x), 1, -1)], 1) for x, b in ((k, self.bias_k), (v, self.bias_v))
            )
        if self.add_zero_attn:
            k, v = (F.pad(x, (0, 0, 0, 1)) for x in (k, v))
        if mask is not None:
            mask = F.pad(mask, (0, k.shape[1] - key.shape[1]))
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        out, weights = self._attend(q, k, v, mask, is_causal=is_causal, need_weights=need_weights)
        attended: Tensor = self.out_proj(out.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if not batched:
            return attended.squeeze(0), None if weights is None else weights.squeeze(0)
        return attended if self.batch_first else attended.transpose(0, 1), weights

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, is_causal: bool, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Of (batch, heads, length, width) each; with the weights only where they are asked for."""
        dropout = self.dropout if self.training else 0.0
        if not need_weights:
            return F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal), None
        scores = (q * math.sqrt(1 / self.head_dim)) @ k.mT
        weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
        return weights @ v, weights

    def _mask(self, attn: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """Both masks as one that is added to the scores, (batch or 1, heads or 1, length or 1, keys)."""
        batch, length, keys = q.shape[0], q.shape[1], k.shape[1]
        mask = None
        if attn is not None:
            legal = [(length, keys), (batch * self.num_heads, length, keys)]
            if tuple(attn.shape) not in legal:
                raise ValueError(f"attn_mask has the shape {tuple(attn.shape)}, not {legal[0]} or {legal[1]}")
            leading = (1, 1) if attn.dim() == 2 else (batch, self.num_heads)
            mask = _additive(attn, q.dtype).reshape(*leading, length, keys)
        if padding is not None:
            if tuple(padding.shape) != (batch, keys):
                raise ValueError(
                    f"key_padding_mask has the shape {tuple(padding.shape)}, not {(batch, keys)}"
                )
            padded = _additive(padding, q.dtype).reshape(batch, 1, 1, keys)
            mask = padded if mask is None else mask + padded
        return mask

    def closed(self) -> nn.MultiheadAttention:
        """The same as nn.MultiheadAttention; all projections are plain layers."""
        q_proj, k_proj, v_proj = (self.get_submodule(name) for name in PROJECTIONS)
        weights = [layer.get_parameter("weight") for layer in (q_proj, k_proj, v_proj)]
        biases = [layer._parameters.get("bias") for layer in (q_proj, k_proj, v_proj)]
        made = nn.MultiheadAttention(
            self.embed_dim,
            self.num_heads,
            self.dropout,
            bias=any(bias is not None for bias in (*biases, self.out_proj.bias)),
            add_zero_attn=self.add_zero_attn,
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=self.batch_first,
            device="meta",
        )
        if made._qkv_same_embed_dim:
            made.register_parameter("in_proj_weight", _joined(weights))
        else:
            made.q_proj_weight, made.k_proj_weight, made.v_proj_weight = weights
        packed_bias = _joined([bias for bias in biases if bias is not None])
        made.register_parameter("in_proj_bias", packed_bias)
        made.bias_k, made.bias_v = self.bias_k, self.bias_v
        made.out_proj.weight, made.out_proj.bias = self.out_proj.weight, self.out_proj.bias
        adopt(self.out_proj, made.out_proj)
        adopt(self, made)
        return made


def _matrices(attention: nn.MultiheadAttention) -> list[nn.Parameter]:
    """Its three matrices, views of the packed one where there is one."""
    if not attention._qkv_same_embed_dim:
        return [attention.get_parameter(f"{name}_weight") for name in PROJECTIONS]
    return _parts(attention.get_parameter("in_proj_weight"))


def _parts(packed: nn.Parameter) -> list[nn.Parameter]:
    """A third each."""
    with torch.inference_mode(packed.is_inference()):  # only there can views of such a tensor be made
        return [nn.Parameter(part, packed.requires_grad) for part in packed.detach().chunk(3)]


def _linear(weight: nn.Parameter, bias: nn.Parameter | None) -> nn.Linear:
    """A linear layer of these very tensors."""
    out_features, in_features = weight.shape
    made = nn.Linear(in_features, out_features, bias=bias is not None, device="meta")
    made.weight = weight
    if bias is not None:
        made.bias = bias
    return made


def _joined(parts: list[nn.Parameter]) -> nn.Parameter | None:
    """Parameters as one, which is trained if any of them is."""
    if not parts:
        return None
    joined = torch.cat([part.detach() for part in parts])
    return nn.Parameter(joined, any(part.requires_grad for part in parts))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask of True for what is left out as −∞ there; one of numbers as it is."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)
