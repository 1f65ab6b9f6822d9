"""Fit one layer of a student to data: its matrix in a metric, and the constant that it adds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from understudy.layers import Conv, GroupedConv, InsideConv, Layer, Linear, SeparableConv
from understudy.layers.dense import the_dense_map
from understudy.students.substitute import separate
from understudy.transforms.inside import Inside
from understudy.transforms.metric import Metric

from .separate import separated


def dense_matrix(layer: nn.Module) -> Tensor:
    """The weight of a dense layer or a stand-in as a matrix out × in·taps, in float64."""
    matrix = layer.matrix() if isinstance(layer, Layer) else the_dense_map(layer).matrix
    return matrix.detach().double().cpu()


@torch.no_grad()
def fit_matrix_(layer: nn.Module, matrix: Tensor, metrics: Sequence[Metric] | None) -> Tensor:
    """Bring a layer's matrix near to `matrix`, in a metric a group or plainly; returns what it has become.

    Decompositions are done on the CPU, where metrics are, and the layer goes back to where it was.
    """
    device = next(layer.parameters()).device
    if device.type != "cpu":
        fit_matrix_(layer.to("cpu"), matrix, metrics)
        return dense_matrix(layer.to(device))
    if isinstance(layer, GroupedConv):
        for place, (part, rows) in enumerate(zip(layer.convs, matrix.chunk(layer.groups), strict=True)):
            fit_matrix_(part, rows, None if metrics is None else metrics[place : place + 1])
        return dense_matrix(layer)
    metric = None if metrics is None else metrics[0]
    if isinstance(layer, Linear | Conv):
        layer.transform.fit_(matrix, metric)
    elif isinstance(layer, InsideConv):
        fitted = Inside(layer.transform, layer.depthwise.weight.flatten(1))
        fitted.fit_(matrix, metric)
        layer.depthwise.weight.copy_(fitted.taps.reshape(layer.depthwise.weight.shape))
    elif isinstance(layer, SeparableConv) and metric is not None:
        parts = separated(matrix, layer.geometry.kernel, metric)
        layer.depthwise.weight.copy_(parts.taps.reshape(layer.depthwise.weight.shape))
        layer.transform.fit_(parts.pointwise, parts.metric)
    elif isinstance(layer, SeparableConv):
        pointwise, depthwise = separate(matrix.reshape(len(matrix), -1, *layer.geometry.kernel))
        layer.depthwise.weight.copy_(depthwise)
        layer.transform.fit_(pointwise)
    else:
        weight = the_dense_map(layer).weight
        weight.copy_(matrix.reshape(weight.shape))
    return dense_matrix(layer)


def times(matrix: Tensor, vector: Tensor) -> Tensor:
    """W x, where W may hold the rows of several groups and x is what comes in to all of them."""
    groups = len(vector) // matrix.shape[1]
    return (matrix.reshape(groups, -1, matrix.shape[1]) @ vector.reshape(groups, -1, 1)).flatten()
