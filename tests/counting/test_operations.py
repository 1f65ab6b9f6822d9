"""The price list: products, convolutions, attention and Fourier transforms by hand; the unknown raises."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import understudy as us
from understudy.counting import operations

Function = Callable[..., Tensor]


class Calling(nn.Module):
    """A network that does one thing."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def count(function: Function, *shapes: tuple[int, ...], meta: bool = True) -> int:
    return us.cost(Calling(function), tuple(torch.ones(shape) for shape in shapes), meta=meta).mult_adds


def fft(n: int) -> int:
    """2.5 n log2 n."""
    return round(2.5 * n * math.log2(n))


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        pytest.param(torch.mm, [(3, 4), (4, 5)], 60, id="mm"),
        pytest.param(torch.bmm, [(2, 3, 4), (2, 4, 5)], 120, id="bmm"),
        pytest.param(torch.mv, [(3, 4), (4,)], 12, id="mv"),
        pytest.param(torch.dot, [(7,), (7,)], 7, id="dot"),
        pytest.param(torch.addmm, [(3, 5), (3, 4), (4, 5)], 60, id="addmm"),
        pytest.param(torch.addmv, [(3,), (3, 4), (4,)], 12, id="addmv"),
        pytest.param(torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)], 120, id="baddbmm"),
        pytest.param(torch.addbmm, [(3, 5), (2, 3, 4), (2, 4, 5)], 120, id="addbmm"),
        pytest.param(torch.matmul, [(2, 1, 3, 4), (6, 4, 5)], 2 * 6 * 60, id="matmul that broadcasts"),
        pytest.param(torch.matmul, [(4,), (4, 5)], 20, id="vector times matrix"),
        pytest.param(F.linear, [(2, 3, 4), (5, 4), (5,)], 6 * 20, id="linear"),
        pytest.param(F.linear, [(4,), (5, 4)], 20, id="linear of one vector"),
        pytest.param(F.linear, [(4,), (5, 4), (5,)], 20, id="linear of one vector with a bias"),
        pytest.param(F.bilinear, [(3, 5), (3, 11), (7, 5, 11)], 3 * 7 * 11 * (5 + 1), id="bilinear"),
        pytest.param(
            lambda a, b: torch.einsum("bij,bkj->bik", a, b), [(2, 3, 4), (2, 5, 4)], 120, id="einsum of two"
        ),
        pytest.param(lambda a, b: torch.einsum("ij,ij->i", a, b), [(3, 4), (3, 4)], 12, id="einsum of rows"),
        pytest.param(
            lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c),
            [(2, 3), (3, 4), (4, 5)],
            2 * 3 * 4 + 2 * 4 * 5,
            id="einsum of three",
        ),
        pytest.param(lambda a, b: torch.tensordot(a, b, 2), [(2, 3, 4), (3, 4, 5)], 120, id="tensordot"),
        pytest.param(F.conv1d, [(2, 3, 9), (4, 3, 5)], 2 * 4 * 5 * 15, id="conv1d"),
        pytest.param(F.conv2d, [(2, 3, 6, 6), (4, 3, 3, 3)], 2 * 4 * 16 * 27, id="conv2d"),
        pytest.param(F.conv3d, [(1, 2, 4, 4, 4), (3, 2, 3, 3, 3)], 3 * 8 * 54, id="conv3d"),
        pytest.param(
            lambda x, w: F.conv2d(x, w, groups=4),
            [(2, 8, 6, 6), (12, 2, 3, 3)],
            2 * 12 * 16 * 18,
            id="grouped conv2d",
        ),
        pytest.param(
            lambda x, w: F.conv2d(x, w, groups=8),
            [(1, 8, 6, 6), (8, 1, 3, 3)],
            8 * 16 * 9,
            id="depthwise conv2d",
        ),
        pytest.param(
            lambda x, w: F.conv2d(x, w, stride=2, padding=1, dilation=2),
            [(1, 3, 9, 9), (4, 3, 3, 3)],
            4 * 16 * 27,
            id="conv2d with a stride, a padding and a dilation",
        ),
        pytest.param(
            lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
            [(2, 3, 5, 5), (3, 4, 3, 3)],
            2 * 3 * 25 * 36,
            id="transposed conv2d",
        ),
        pytest.param(
            lambda x, w: F.conv_transpose2d(x, w, groups=2),
            [(1, 4, 5, 5), (4, 3, 3, 3)],
            4 * 25 * 27,
            id="grouped transposed conv2d",
        ),
        pytest.param(F.conv_transpose1d, [(2, 3, 5), (3, 4, 3)], 2 * 3 * 5 * 12, id="transposed conv1d"),
        pytest.param(
            F.scaled_dot_product_attention,
            [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)],
            2 * 3 * 5 * 7 * (8 + 8),
            id="attention",
        ),
        pytest.param(
            F.scaled_dot_product_attention,
            [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)],
            2 * 3 * 5 * 7 * (8 + 4),
            id="attention with narrow values",
        ),
        pytest.param(
            lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
            [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (5, 7)],
            2 * 3 * 5 * 7 * (8 + 8),
            id="attention with a mask",
        ),
        pytest.param(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            [(2, 3, 5, 8)] * 3,
            2 * 3 * 5 * 5 * (8 + 8),
            id="causal attention",
        ),
        pytest.param(
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            [(2, 4, 5, 8), (2, 2, 5, 8), (2, 2, 5, 8)],
            2 * 4 * 5 * 5 * (8 + 8),
            id="attention with grouped queries",
        ),
        pytest.param(lambda x: torch.fft.rfft(x).real, [(3, 16)], 3 * fft(16), id="rfft"),
        pytest.param(lambda x: torch.fft.rfft(x).real, [(3, 15)], 3 * fft(15), id="rfft of an odd length"),
        pytest.param(lambda x: torch.fft.irfft(torch.fft.rfft(x)), [(3, 16)], 2 * 3 * fft(16), id="irfft"),
        pytest.param(
            lambda x: torch.fft.fft(torch.view_as_complex(x)).real, [(3, 16, 2)], 2 * 3 * fft(16), id="fft"
        ),
        pytest.param(
            lambda x: torch.fft.ifft(torch.complex(x, x)).real, [(3, 16)], 2 * 3 * fft(16), id="ifft"
        ),
        pytest.param(lambda x: torch.fft.fft(x).real, [(3, 16)], 3 * fft(16), id="fft of real numbers"),
        pytest.param(
            lambda x: torch.fft.rfft2(x).real, [(3, 8, 16)], 3 * (8 * fft(16) + 16 * fft(8)), id="rfft2"
        ),
        pytest.param(
            lambda x: torch.fft.rfft(x, n=16).real, [(3, 10)], 3 * fft(16), id="rfft of a padded signal"
        ),
        pytest.param(lambda x: x * x + x / 2, [(3, 4)], 0, id="elementwise"),
        pytest.param(lambda x: x.softmax(-1).sum().relu(), [(3, 4)], 0, id="softmax"),
        pytest.param(lambda x: F.avg_pool2d(x, 2), [(1, 3, 4, 4)], 0, id="pooling"),
        pytest.param(lambda x: F.layer_norm(x, (4,)), [(3, 4)], 0, id="normalising"),
        pytest.param(lambda x: x.mT.reshape(-1)[::2].flip(0), [(3, 4)], 0, id="moving"),
        pytest.param(
            lambda x: x.clone().squeeze_(0).unsqueeze_(1).transpose_(0, 1), [(1, 3)], 0, id="moving in place"
        ),
        pytest.param(lambda x: torch.cat(x.unsafe_chunk(2)), [(4, 3)], 0, id="unsafe chunks"),
        pytest.param(lambda x: x // 2, [(3, 4)], 0, id="floor division"),
        pytest.param(lambda x: x.clone().floor_divide_(2).eq_(1), [(3, 4)], 0, id="elementwise in place"),
        pytest.param(lambda a, b: a.clone().addmm_(b, b), [(3, 3), (3, 3)], 27, id="addmm in place"),
        pytest.param(torch.cdist, [(3, 4), (5, 4)], 60, id="distances"),
        pytest.param(torch.addr, [(3, 5), (3,), (5,)], 0, id="elementwise, by its parts"),
        pytest.param(torch.linalg.cross, [(4, 3), (4, 3)], 0, id="cross products, by their parts"),
    ],
)
def test_an_operation_costs_what_it_does_by_hand(
    function: Function, shapes: list[tuple[int, ...]], expected: int, meta: bool
) -> None:
    assert count(function, *shapes, meta=meta) == expected


SEQUENCE, IMAGE, VOLUME = torch.zeros(2, 4, 12), torch.zeros(2, 4, 12, 12), torch.zeros(1, 4, 6, 6, 6)


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize(
    ("layer", "example"),
    [
        (nn.Sequential(nn.ReLU(True), nn.ReLU6(True), nn.ELU(1.0, True), nn.SiLU(True), nn.GELU()), IMAGE),
        (nn.Sequential(nn.Hardswish(True), nn.Hardsigmoid(True), nn.Mish(True), nn.CELU(1.0, True)), IMAGE),
        (nn.Sequential(nn.LeakyReLU(), nn.PReLU(), nn.RReLU(), nn.SELU(), nn.Softplus(), nn.Tanh()), IMAGE),
        (nn.Sequential(nn.GLU(1), nn.LogSigmoid(), nn.Softshrink(), nn.Softsign(), nn.Hardtanh()), IMAGE),
        (nn.Sequential(nn.Softmax(1), nn.LogSoftmax(1), nn.Softmin(1), nn.Softmax2d()), IMAGE),
        (nn.Sequential(nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout()), IMAGE),
        (nn.Sequential(nn.BatchNorm2d(4), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4)), IMAGE),
        (nn.Sequential(nn.LayerNorm(12), nn.RMSNorm(12), nn.LocalResponseNorm(2)), IMAGE),
        (nn.Sequential(nn.BatchNorm1d(4), nn.InstanceNorm1d(4)), SEQUENCE),
        (nn.Sequential(nn.BatchNorm3d(4), nn.InstanceNorm3d(4)), VOLUME),
        (nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.ChannelShuffle(2)), IMAGE),
        (nn.Sequential(nn.Unfold(3), nn.Flatten()), IMAGE),
        (nn.Fold((4, 4), (2, 2)), torch.zeros(1, 4, 9)),
        *(
            (kind(2), SEQUENCE)
            for kind in (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d)
        ),
        *(
            (kind(2), IMAGE)
            for kind in (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
        ),
        *(
            (kind(2), VOLUME)
            for kind in (nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d)
        ),
        (nn.LPPool2d(2, 2), IMAGE),
        (nn.FractionalMaxPool2d(2, output_size=5), IMAGE),
        *(
            (kind(1), SEQUENCE)
            for kind in (nn.ReflectionPad1d, nn.ReplicationPad1d, nn.ZeroPad1d, nn.CircularPad1d)
        ),
        *(
            (kind(1), IMAGE)
            for kind in (nn.ReflectionPad2d, nn.ReplicationPad2d, nn.ZeroPad2d, nn.CircularPad2d)
        ),
        *(
            (kind(1), VOLUME)
            for kind in (nn.ReflectionPad3d, nn.ReplicationPad3d, nn.ZeroPad3d, nn.CircularPad3d)
        ),
        *((nn.Upsample(scale_factor=2, mode=mode), SEQUENCE) for mode in ("nearest", "linear")),
        *((nn.Upsample(scale_factor=2, mode=mode), IMAGE) for mode in ("nearest", "nearest-exact", "area")),
        *((nn.Upsample(scale_factor=2, mode=mode), IMAGE) for mode in ("bilinear", "bicubic")),
        *((nn.Upsample(scale_factor=2, mode=mode), VOLUME) for mode in ("nearest", "trilinear")),
        *((kind(9, 4), torch.zeros(2, 3, dtype=torch.long)) for kind in (nn.Embedding, nn.EmbeddingBag)),
        *((kind(), (SEQUENCE, SEQUENCE)) for kind in (nn.CosineSimilarity, nn.PairwiseDistance)),
    ],
    ids=lambda value: repr(value)[:60] if isinstance(value, nn.Module) else "",
)
def test_layers_that_contract_nothing_are_known_and_free(layer: nn.Module, example: Any, meta: bool) -> None:
    assert us.cost(layer, example, meta=meta).mult_adds == 0


@pytest.mark.parametrize(
    ("function", "shapes", "name"),
    [
        (torch.linalg.inv, [(3, 3)], "linalg_inv_ex"),
        (torch.linalg.svdvals, [(3, 3)], "svd"),
        (torch.matrix_exp, [(3, 3)], "matrix_exp"),
        (lambda x: torch.linalg.cholesky(x + 3 * torch.eye(3, device=x.device)), [(3, 3)], "cholesky"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_unknown_operation_raises_and_is_named(
    function: Function, shapes: list[tuple[int, ...]], name: str
) -> None:
    with pytest.raises(
        us.UnknownOperationError, match=rf"no mult-add rule for aten\.\w*({name})\w*\."
    ) as caught:
        count(function, *shapes)
    assert "understudy.register_operation(torch.ops.aten." in str(caught.value)


@pytest.fixture
def price_list() -> Iterator[None]:
    """Gives back the rules as they were."""
    rules = dict(operations._RULES)
    yield
    operations._RULES.clear()
    operations._RULES.update(rules)


def inverse(matrix: Tensor) -> Tensor:
    inverted: Tensor = torch.linalg.inv_ex(matrix)[0]
    return inverted


@pytest.mark.usefixtures("price_list")
def test_an_operation_is_taught_by_a_rule() -> None:
    operations.register_operation(torch.ops.aten.linalg_inv_ex, lambda args, _result: args[0].shape[-1] ** 3)
    assert count(inverse, (5, 5)) == 125


@pytest.mark.usefixtures("price_list")
def test_an_operation_without_a_rule_of_its_own_is_taught_to_be_free() -> None:
    operations.register_operation(torch.ops.aten.linalg_inv_ex)
    assert count(inverse, (5, 5)) == 0


@pytest.mark.usefixtures("price_list")
def test_the_line_that_an_error_suggests_teaches_the_operation() -> None:
    with pytest.raises(us.UnknownOperationError) as caught:
        count(inverse, (5, 5))
    call = str(caught.value).partition("with ")[2]
    exec(call, {"torch": torch, "understudy": us, "rule": lambda _args, _result: 7})
    assert count(inverse, (5, 5)) == 7


@pytest.mark.usefixtures("price_list")
def test_a_custom_operation_is_taught_as_any_other() -> None:
    library = torch.library.Library("understudy_tests", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
    twice: Any = torch.ops.understudy_tests.twice
    with pytest.raises(us.UnknownOperationError, match=r"torch\.ops\.understudy_tests\.twice"):
        count(twice, (3, 4))
    operations.register_operation(twice, lambda _args, result: int(result.numel()))
    assert count(twice, (3, 4)) == 12


@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(3, 5),
        nn.LSTM(3, 5, num_layers=2, bidirectional=True),
        nn.GRU(3, 5, num_layers=2),
        nn.RNN(3, 5, nonlinearity="relu"),
    ],
    ids=str,
)
def test_a_recurrent_layer_uses_every_matrix_once_for_each_vector(layer: nn.Module, meta: bool) -> None:
    matrices = sum(parameter.numel() for parameter in layer.parameters() if parameter.dim() == 2)
    assert us.cost(layer, torch.zeros(7, 2, 3), meta=meta).mult_adds == 7 * 2 * matrices


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((6, 4), (2, 4, 5), 6 * 4 * 5),
        ((2, 3, 4), (2, 4, 5), 2 * 3 * 4 * 5),
        ((2, 3, 4), (4, 10), 3 * 4 * 10),
        ((3, 8), (8, 5), 3 * 8 * 5),
    ],
    ids=["slices of rows", "batches", "slices of columns", "slices of what is summed over"],
)
def test_a_product_in_slices_costs_what_its_slices_do(
    left: tuple[int, ...], right: tuple[int, ...], expected: int
) -> None:
    product = torch.ops.aten._grouped_mm.default
    args = (torch.empty(left, device="meta"), torch.empty(right, device="meta"))
    assert operations.mult_adds(product, args, None) == expected


def test_choosing_boxes_is_free() -> None:
    pytest.importorskip("torchvision")
    assert operations.has_rule(torch.ops.torchvision.nms.default)
