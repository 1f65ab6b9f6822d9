"""What one PyTorch operation costs in mult-adds: a rule for each kind, and an error for an unknown one.

1 mult-add = 1 multiply-accumulate. Contractions, convolutions and Fourier transforms are counted. Moving
data, adding, pooling, normalising and elementwise functions are free, as in most published counts; inside a
transform elementwise products are part of the linear map, so there they count (`product_mult_adds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from understudy.transforms.cosine import real_fft_mult_adds

aten = torch.ops.aten
Rule = Callable[[tuple[Any, ...], Any], int]


class UnknownOperationError(RuntimeError):
    """The trace met an operation that has no rule.

    >>> import torch, understudy as us
    >>> class Spectrum(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.linalg.eigvals(x).abs()
    >>> try:
    ...     us.cost(Spectrum(), (4, 4))
    ... except us.UnknownOperationError as error:
    ...     print(str(error).partition(":")[0])
    no mult-add rule for aten.linalg_eig.default
    """


_FREE_TAGS = frozenset((torch.Tag.pointwise, torch.Tag.reduction, torch.Tag.view_copy))


def has_rule(operation: OpOverload) -> bool:
    """Whether an operation is known, counted or free."""
    free = operation.is_view or not _FREE_TAGS.isdisjoint(operation.tags)
    return free or _known(operation) is not None


def in_parts(operation: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run an operation as the others that it is made of, by PyTorch's own account; else NotImplemented."""
    result = operation.decompose(*args, **kwargs)
    if result is not NotImplemented:
        return result
    from torch._decomp import decomposition_table  # takes long to import

    known = decomposition_table.get(operation)
    return NotImplemented if known is None else known(*args, **kwargs)


def mult_adds(operation: OpOverload, args: tuple[Any, ...], result: Any) -> int:
    """Mult-adds of one call; raises UnknownOperationError rather than guess."""
    if not has_rule(operation):
        raise UnknownOperationError(
            f"no mult-add rule for {operation}: give it one with "
            f"understudy.register_operation(torch.ops.{operation.overloadpacket}, rule)"
        )
    rule = _known(operation)
    return 0 if rule is None else rule(args, result)


def _known(operation: OpOverload) -> Rule | None:
    """The rule of an operation, or of the one that it is the in-place form of."""
    packet = operation.overloadpacket
    functional = getattr(aten, packet.__name__.removesuffix("_"), packet)
    if operation.namespace == "prim":  # a tensor is asked where it is
        return _free
    for one in (packet, functional if operation.namespace == "aten" else packet):
        if one in _RULES:
            return _RULES[one]
        if one in _FREE:
            return _free
    return _free if operation.name().partition(".")[0] in _FREE_ELSEWHERE else None


def _free(args: tuple[Any, ...], result: Any) -> int:  # noqa: ARG001
    return 0


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
    _RULES[packet] = _free if rule is None else rule


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
    """Every matrix of every layer once for each vector of the input: (input, …, matrices and biases, …)."""
    weights = [argument for argument in args[:4] if isinstance(argument, list | tuple)][-1]
    return int(_vectors(args[0]) * sum(weight.numel() for weight in weights if weight.dim() == 2))


def _vectors(tensor: Tensor) -> int:
    return tensor.numel() // max(1, tensor.shape[-1])


def _grouped_product(args: tuple[Any, ...], result: Any) -> int:  # noqa: ARG001
    """Slices of rows, of columns or of what is summed over, each with a matrix of its own."""
    left, right = args[:2]
    slices = left.shape[0] if left.dim() == 3 and right.dim() == 2 else 1  # a slice of the columns each
    return _matmul(left, right) // max(1, slices)


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
    aten.rnn_tanh: _recurrent,
    aten.rnn_relu: _recurrent,
    aten._cudnn_rnn: lambda args, _: _recurrent(args[:2], None),
    aten.mkldnn_rnn_layer: lambda args, _: _vectors(args[0]) * (args[1].numel() + args[2].numel()),
    aten._grouped_mm: _grouped_product,
    aten._int_mm: lambda args, _: _matmul(args[0], args[1]),
    aten._cdist_forward: lambda args, result: result.numel() * args[0].shape[-1],
}

# Neither views nor tagged pointwise by PyTorch, and without a multiply-accumulate worth counting.
_FREE_NAMES = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _assert_async _assert_scalar _assert_tensor_metadata
    _chunk_cat _embedding_bag _embedding_bag_forward_only _functional_assert_async
    _functional_assert_scalar _local_scalar_dense _log_softmax _logcumsumexp
    _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _pack_padded_sequence _prelu_kernel _safe_softmax _softmax
    _thnn_fused_gru_cell _thnn_fused_lstm_cell _to_copy _unique2 _unsafe_index _unsafe_index_put
    _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_lanczos2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    _weight_norm_interface adaptive_max_pool2d adaptive_max_pool3d all allclose amax amin aminmax
    any arange argmax argmin as_strided_ avg_pool2d avg_pool3d bartlett_window bernoulli bernoulli_
    bincount blackman_window block_diag bucketize cat channel_shuffle col2im complex constant_pad_nd
    copy copy_ count_nonzero cummax cummin cumprod cumsum detach_ diag_embed diagonal_scatter
    embedding empty empty_like empty_permuted empty_strided eq expand_copy exponential_ eye fill
    fill_ flip floor_divide fractional_max_pool2d fractional_max_pool3d full full_like gather gelu_
    glu grid_sampler_2d grid_sampler_3d hamming_window hann_window hardswish hardswish_ histc
    histogram im2col index index_add index_add_ index_copy index_copy_ index_fill index_fill_
    index_put index_put_ index_reduce index_select is_same_size isin kaiser_window kthvalue lift
    lift_fresh_copy linalg_vector_norm linspace log_sigmoid_forward logcumsumexp logspace logsumexp
    masked_fill masked_fill_ masked_scatter masked_select max max_pool2d_with_indices
    max_pool3d_with_indices max_unpool2d max_unpool3d mean median min mish_ mode multinomial
    nanmedian narrow_copy native_batch_norm native_dropout native_group_norm native_layer_norm
    new_empty new_empty_strided new_full new_ones new_zeros nonzero nonzero_static norm normal
    normal_ ones ones_like pixel_shuffle pixel_unshuffle poisson polar prod put rand rand_like
    randint randint_like randn randn_like random randperm range reflection_pad1d reflection_pad2d
    reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d
    resize_ resize_as roll rot90 rrelu_with_noise scalar_tensor scatter scatter_ scatter_add
    scatter_add_ scatter_reduce searchsorted segment_reduce select_scatter slice_scatter sort
    squeeze_ stack std std_mean sum swapaxes_ sym_constrain_range sym_constrain_range_for_size t_
    take threshold_ topk transpose_ tril tril_ tril_indices triu triu_ triu_indices uniform uniform_
    unique_consecutive unique_dim unique_dim_consecutive unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze_ upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d var var_mean where
    zero zero_ zeros zeros_like
"""
_MARKS = ("_record_function_enter", "_record_function_enter_new", "_record_function_exit")  # for a profile
_FREE = frozenset(getattr(aten, name) for name in _FREE_NAMES.split()) | frozenset(
    getattr(torch.ops.profiler, name) for name in _MARKS
)
# Of torchvision, whether it is there or not: they choose boxes, and read values between pixels.
_FREE_ELSEWHERE = frozenset(
    ("torchvision::nms", "torchvision::roi_align", "torchvision::roi_pool", "torchvision::ps_roi_align")
)
