"""Fit one layer of a student to data: its matrix in a metric, and the constant that it adds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from understudy.layers import Conv, Layer, Linear, SeparableConv
from understudy.students.substitute import separate
from understudy.transforms.metric import Metric

from .separate import separated


def dense_matrix(layer: nn.Module) -> Tensor:
    """The weight of a dense layer or a stand-in as a matrix out × in·taps, in float64."""
    weight = layer.weight if isinstance(layer, Layer) else layer.get_parameter("weight")
    return weight.detach().double().flatten(1)


@torch.no_grad()
def fit_matrix_(layer: nn.Module, matrix: Tensor, metric: Metric | None) -> Tensor:
    """Bring a layer's matrix near to `matrix`, in a metric or plainly; returns what it has become."""
    if isinstance(layer, Linear | Conv):
        layer.transform.fit_(matrix, metric)
    elif isinstance(layer, SeparableConv) and metric is not None:
        parts = separated(matrix, layer.geometry.kernel, metric)
        layer.depthwise.weight.copy_(parts.taps.reshape(layer.depthwise.weight.shape))
        layer.transform.fit_(parts.pointwise, parts.metric)
    elif isinstance(layer, SeparableConv):
        pointwise, depthwise = separate(matrix.reshape(len(matrix), -1, *layer.geometry.kernel))
        layer.depthwise.weight.copy_(depthwise)
        layer.transform.fit_(pointwise)
    else:
        weight = layer.get_parameter("weight")
        weight.copy_(matrix.reshape(weight.shape))
    return dense_matrix(layer)
