"""What one PyTorch operation costs in mult-adds: a rule for each kind, and an error for an unknown one.

1 mult-add = 1 multiply-accumulate. Contractions, convolutions and Fourier transforms are counted. Moving
data, adding, pooling, normalising and elementwise functions are free, as in most published counts; inside a
transform elementwise products are part of the linear map, so there they count (`product_mult_adds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from understudy.transforms.cosine import real_fft_mult_adds

aten = torch.ops.aten
Rule = Callable[[tuple[Any, ...], Any], int]


class UnknownOperationError(RuntimeError):
    """The trace met an operation that has no rule."""


def has_rule(operation: OpOverload) -> bool:
    """Whether an operation is known, counted or free."""
    packet = operation.overloadpacket
    return packet in _RULES or packet in _FREE or operation.is_view or torch.Tag.pointwise in operation.tags


def mult_adds(operation: OpOverload, args: tuple[Any, ...], result: Any) -> int:
    """Mult-adds of one call; raises UnknownOperationError rather than guess."""
    if not has_rule(operation):
        raise UnknownOperationError(
            f"no mult-add rule for {operation}: give it one with "
            f"understudy.register_operation(torch.ops.{operation.overloadpacket}, rule)"
        )
    rule = _RULES.get(operation.overloadpacket)
    return 0 if rule is None else rule(args, result)


def product_mult_adds(operation: OpOverload, result: Any) -> int:
    """Mult-adds of an elementwise product or quotient, 0 for any other operation."""
    if operation.overloadpacket not in (aten.mul, aten.div):
        return 0
    return int(result.numel() * _each(result))


def register_operation(packet: Any, rule: Rule | None = None) -> None:
    """Count an operation by `rule(args, result)`, or as free when there is none.

    >>> import torch
    >>> register_operation(torch.ops.aten.linalg_lu, lambda args, result: args[0].shape[-1] ** 3 // 3)
    """
    _RULES[packet] = rule if rule is not None else lambda args, result: 0  # noqa: ARG005


def _each(factor: Tensor) -> int:
    """Mult-adds of one product: four where the numbers are complex."""
    return 4 if factor.is_complex() else 1


def _matmul(left: Tensor, right: Tensor) -> int:
    """(…, n, k) times (…, k, m), or a vector on either side."""
    columns = right.shape[-1] if right.dim() > 1 else 1
    return int(left.numel() * columns * _each(right))


def _convolution(args: tuple[Any, ...], result: Any) -> int:
    """Each output element sums one kernel; a transposed convolution spreads each input element by one."""
    x, weight, transposed = args[0], args[1], bool(args[6])
    return int((x if transposed else result).numel() * weight[0].numel())


def _attention(args: tuple[Any, ...], result: Any) -> int:  # noqa: ARG001
    """Scores of every query with every key, then a weighted sum of values: (…, length, width) each."""
    query, key, value = args[:3]
    queries = query.numel() // query.shape[-1]
    return int(queries * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _fft(factor: int, length: Callable[[Tensor, Any], Tensor]) -> Rule:
    def rule(args: tuple[Any, ...], result: Any) -> int:
        signal = length(args[0], result)  # the side of the transform whose axes have their full length
        total = 0
        for axis in args[1]:
            n = signal.shape[axis]
            total += signal.numel() // n * factor * real_fft_mult_adds(n)
        return total

    return rule


def _recurrent(args: tuple[Any, ...], result: Any) -> int:  # noqa: ARG001
    raise UnknownOperationError(
        "fused recurrent layers have no mult-add rule; understudy does not count them yet"
    )


def _trilinear(args: tuple[Any, ...], result: Any) -> int:  # noqa: ARG001
    """Three factors, each first given new axes: the first with the second, summed, then with the third."""
    shapes = []
    for tensor, new_axes in zip(args[:3], args[3:6], strict=True):
        shape = list(tensor.shape)
        for axis in new_axes:
            shape.insert(axis, 1)
        shapes.append(shape)
    first, second, third = shapes
    sizes = [max(axis) for axis in zip(*shapes, strict=True)]
    summed_at_once = {axis for axis in args[6] if third[axis] == 1}
    pair = math.prod(max(axis) for axis in zip(first, second, strict=True))
    rest = math.prod(size for axis, size in enumerate(sizes) if axis not in summed_at_once)
    return int(pair + rest)


_RULES: dict[Any, Rule] = {
    aten.mm: lambda args, _: _matmul(args[0], args[1]),
    aten.bmm: lambda args, _: _matmul(args[0], args[1]),
    aten.mv: lambda args, _: _matmul(args[0], args[1]),
    aten.dot: lambda args, _: _matmul(args[0], args[1]),
    aten.vdot: lambda args, _: _matmul(args[0], args[1]),
    aten.addmm: lambda args, _: _matmul(args[1], args[2]),
    aten.addbmm: lambda args, _: _matmul(args[1], args[2]),
    aten.baddbmm: lambda args, _: _matmul(args[1], args[2]),
    aten.addmv: lambda args, _: _matmul(args[1], args[2]),
    aten.linear: lambda args, result: result.numel() * args[1].shape[-1],
    aten._trilinear: _trilinear,
    aten.convolution: _convolution,
    aten._convolution: _convolution,
    aten.convolution_overrideable: _convolution,
    aten.mkldnn_convolution: lambda args, result: result.numel() * args[1][0].numel(),
    aten._scaled_dot_product_flash_attention: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_efficient_attention: _attention,
    aten._scaled_dot_product_fused_attention_overrideable: _attention,
    aten._scaled_dot_product_cudnn_attention: _attention,
    aten._fft_r2c: _fft(1, lambda x, _: x),
    aten._fft_c2r: _fft(1, lambda _, result: result),
    aten._fft_c2c: _fft(2, lambda x, _: x),
    aten.lstm: _recurrent,
    aten.gru: _recurrent,
    aten.mkldnn_rnn_layer: _recurrent,
}

# Neither views nor tagged pointwise by PyTorch, and without a multiply-accumulate worth counting.
_FREE_NAMES = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _assert_async _assert_tensor_metadata _embedding_bag
    _embedding_bag_forward_only _local_scalar_dense _log_softmax _native_batch_norm_legit
    _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _prelu_kernel
    _safe_softmax _softmax _to_copy _unique2 _unsafe_index _unsafe_index_put _unsafe_view
    _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d _weight_norm_interface adaptive_max_pool2d
    adaptive_max_pool3d all amax amin aminmax any arange argmax argmin as_strided_ avg_pool2d
    avg_pool3d bernoulli bernoulli_ bincount block_diag bucketize cat channel_shuffle col2im complex
    constant_pad_nd copy copy_ count_nonzero cummax cummin cumprod cumsum detach_ embedding empty
    empty_like empty_permuted empty_strided eq expand_copy exponential_ eye fill fill_ flip
    fractional_max_pool2d fractional_max_pool3d full full_like gather gelu_ glu grid_sampler_2d
    hardswish hardswish_ histc im2col index index_add index_add_ index_copy index_copy_ index_fill
    index_fill_ index_put index_put_ index_select isin lift lift_fresh_copy linalg_vector_norm
    linspace log_sigmoid_forward logcumsumexp logspace logsumexp masked_fill masked_fill_
    masked_scatter masked_select max max_pool2d_with_indices max_pool3d_with_indices max_unpool2d
    mean median min mish_ mode multinomial native_batch_norm native_dropout native_group_norm
    native_layer_norm new_empty new_empty_strided new_full new_ones new_zeros nonzero norm normal
    normal_ ones ones_like pixel_shuffle pixel_unshuffle polar prod rand rand_like randint
    randint_like randn randn_like randperm reflection_pad1d reflection_pad2d reflection_pad3d repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d resize_ roll
    rrelu_with_noise scalar_tensor scatter scatter_ scatter_add scatter_add_ scatter_reduce
    searchsorted segment_reduce select_scatter slice_scatter sort squeeze_ stack std std_mean sum
    swapaxes_ t_ take threshold_ topk transpose_ tril tril_ tril_indices triu triu_ triu_indices
    uniform uniform_ unique_consecutive unique_dim unsafe_chunk unsafe_split unsafe_split_with_sizes
    unsqueeze_ upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
    upsample_nearest2d upsample_nearest3d upsample_trilinear3d var var_mean where zero zero_ zeros
    zeros_like
"""
_MARKS = ("_record_function_enter", "_record_function_enter_new", "_record_function_exit")  # for a profile
_FREE = frozenset(getattr(aten, name) for name in _FREE_NAMES.split()) | frozenset(
    getattr(torch.ops.profiler, name) for name in _MARKS
)
